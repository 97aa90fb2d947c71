# Sets the GPU operator's runtime class for the pods of every ClusterTrainingRuntime.
.items[].spec.template.spec.replicatedJobs[].template.spec.template.spec.runtimeClassName = "nvidia"
