# Gives the pods of every ClusterTrainingRuntime the runtime class that the GPU operator makes.
.items[].spec.template.spec.replicatedJobs[].template.spec.template.spec.runtimeClassName = "nvidia"
