"""What a change of each setting means, and for whom.

Every setting of the JSON Schema has a row; tests/tools/diff/test_settings.py says which one is missing. A row of a map
of sections (`runners`) is about its entries. What is in a list belongs to the list's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Audience = Literal["users", "operators", "no effect"]


@dataclass(frozen=True)
class Effect:
    """What a change of one setting means."""

    audience: Audience
    """`users`: jobs, or people who write workflows, notice it. `operators`: only who runs the fleet does. `no effect`:
    no resource and no job depends on it."""
    words: str
    """What changes, as a noun phrase. Where the comment says the same of a label, it uses these words."""
    private: bool = False
    """Whether values are not shown."""


def users(words: str, *, private: bool = False) -> Effect:
    """Return the effect of a setting that jobs or authors of workflows notice."""
    return Effect("users", words, private)


def operators(words: str, *, private: bool = False) -> Effect:
    """Return the effect of a setting that only operators notice."""
    return Effect("operators", words, private)


def no_effect(words: str) -> Effect:
    """Return the effect of a setting that nothing depends on."""
    return Effect("no effect", words)


_POD: Mapping[str, Effect] = {
    "profiles.<profile>.command": users("command of the runner"),
    "profiles.<profile>.args": users("arguments of the runner"),
    "profiles.<profile>.docker.kind": users("way in which jobs run containers"),
    "profiles.<profile>.docker.command": users("command of Docker's daemon"),
    "profiles.<profile>.docker.args": users("arguments of Docker's daemon"),
    "profiles.<profile>.docker.startupProbe": users("startup probe of Docker's daemon"),
    "profiles.<profile>.docker.volumeMounts": users("mounts of Docker's daemon"),
    "profiles.<profile>.docker.workVolumeClaim": users("claim of the work folder"),
    "profiles.<profile>.docker.additionalRoleRules": users("rights of the runners in the cluster"),
    "profiles.<profile>.extendedResources": users("extended resources"),
    "profiles.<profile>.envValueFrom": users("environment variables"),
    "profiles.<profile>.envFrom": users("environment variables"),
    "profiles.<profile>.volumeMounts": users("mounts of the runner"),
    "profiles.<profile>.workVolume": users("volume of the work folder"),
    "profiles.<profile>.initContainers": users("init containers"),
    "profiles.<profile>.securityContext": users("security context of the runner"),
    "profiles.<profile>.podSecurityContext": users("security context of the pods"),
    "profiles.<profile>.podMetadata.labels": operators("labels of the pods"),
    "profiles.<profile>.podMetadata.annotations": operators("annotations of the pods"),
    "profiles.<profile>.serviceAccountName": users("service account of the runners"),
    "profiles.<profile>.automountServiceAccountToken": users("token of the service account in pods"),
    "profiles.<profile>.affinity": users("affinity"),
    "profiles.<profile>.topologySpreadConstraints": users("spread of the pods"),
    "profiles.<profile>.priorityClassName": users("PriorityClass"),
    "profiles.<profile>.imagePullSecrets": operators("Secrets for pulling images"),
    "profiles.<profile>.dnsPolicy": users("DNS policy"),
    "profiles.<profile>.dnsConfig": users("DNS settings"),
    "profiles.<profile>.hostAliases": users("lines of /etc/hosts"),
    "profiles.<profile>.hostUsers": users("user namespace of the pods"),
    "profiles.<profile>.terminationGracePeriodSeconds": users("seconds that an ended runner has"),
    "profiles.<profile>.listenerTemplate": operators("pod template of the listeners"),
    "profiles.<profile>.listenerMetrics.counters": operators("counters of the listeners"),
    "profiles.<profile>.listenerMetrics.gauges": operators("gauges of the listeners"),
    "profiles.<profile>.listenerMetrics.histograms": operators("histograms of the listeners"),
    "profiles.<profile>.podTemplate": users("pod template"),
}

_EVERY_STACK: Mapping[str, Effect] = {
    "arc.version": operators("version of ARC's controller and scale sets"),
    "arc.namespace": operators("namespace of ARC's controller and listeners"),
    "arc.release": operators("Helm release of ARC's controller"),
    "arc.metrics": operators("metrics of controller and listeners"),
    "arc.logLevel": operators("log level of ARC's controller"),
    "charts.mirror": operators("source of Helm charts"),
    "projects": users("project"),
    "projects.<project>.configUrl": users("jobs of"),
    "projects.<project>.namespace": users("namespace of the runners"),
    "projects.<project>.runnerGroup": users("runner group"),
    "projects.<project>.owner": users("owner in the catalogue of labels"),
    "projects.<project>.contact": users("contact in the catalogue of labels"),
    "projects.<project>.credentials.kind": operators("kind of credentials at GitHub"),
    "projects.<project>.credentials.secretName": operators("Kubernetes Secret of the credentials"),
    "projects.<project>.credentials.appId": operators("GitHub App"),
    "projects.<project>.credentials.revision": operators("revision of the credentials"),
    "projects.<project>.credentials.installationId": operators("installation of the GitHub App"),
    "profiles": operators("profile"),
    "profiles.<profile>.pool": users("pool"),
    "profiles.<profile>.image": users("jobs run in image"),
    "profiles.<profile>.runnerVersion": users("runner version"),
    "profiles.<profile>.imagePullPolicy": users("image pull policy"),
    "profiles.<profile>.docker.image": users("Docker's daemon runs in image"),
    "profiles.<profile>.docker.groupId": users("group of Docker's socket"),
    "profiles.<profile>.docker.dataRoot": users("Docker's data root"),
    "profiles.<profile>.ephemeralStorage": users("disk"),
    "profiles.<profile>.renderGroup": users("render group"),
    "profiles.<profile>.runtimeClass": users("RuntimeClass"),
    "profiles.<profile>.nodeSelector": users("node selector"),
    "profiles.<profile>.tolerations": users("tolerations"),
    "profiles.<profile>.env": users("environment variables", private=True),
    "profiles.<profile>.envFromSecret": users("environment variables"),
    "profiles.<profile>.envFromSecret.<variable>.name": users("Secret of environment variables"),
    "profiles.<profile>.envFromSecret.<variable>.key": users("key in the Secret of environment variables"),
    "profiles.<profile>.volumes": users("volumes"),
    "profiles.<profile>.volumes.<volume>.mountPath": users("mount path of volumes"),
    "profiles.<profile>.volumes.<volume>.source": users("source of volumes"),
    "profiles.<profile>.volumes.<volume>.readOnly": users("write protection of volumes"),
    "profiles.<profile>.volumes.<volume>.subPath": users("path within volumes"),
    **_POD,
    "runners": users("label"),
    "runners.<label>.project": users("project"),
    "runners.<label>.profile": users("profile"),
    "runners.<label>.gpus": users("GPUs"),
    "runners.<label>.cpu": users("CPU"),
    "runners.<label>.memory": users("memory"),
    "runners.<label>.min": users("idle"),
    "runners.<label>.max": users("at most"),
    "runners.<label>.docker": users("Docker"),
    "runners.<label>.limits.cpu": users("CPU limit"),
    "runners.<label>.limits.memory": users("memory limit"),
    "runners.<label>.deprecated.until": users("served until"),
    "runners.<label>.deprecated.use": users("use instead"),
    "acknowledged": no_effect("acknowledged findings"),
}

_ANY_CLUSTER: Mapping[str, Effect] = {
    "cluster.kind": users("kind of cluster"),
    "cluster.name": users("cluster"),
    "cluster.nodePools": operators("node pool"),
    "cluster.nodePools.<pool>.labels": operators("labels of the pool's nodes"),
    "cluster.nodePools.<pool>.taints": operators("taints of the pool's nodes"),
    "cluster.nodePools.<pool>.overcommit": users("whether labels may exceed the pool"),
}

_KUBESPRAY: Mapping[str, Effect] = {
    "cluster.kubespray.runOn.kind": operators("machine that runs kubespray"),
    "cluster.kubespray.runOn.name": operators("name of the bastion"),
    "cluster.kubespray.runOn.address": operators("address of the bastion"),
    "cluster.kubespray.runOn.hostKeys": operators("SSH host keys of the bastion"),
    "cluster.kubespray.runOn.port": operators("SSH port of the bastion"),
    "cluster.kubespray.runOn.agentSocket": operators("SSH agent for the bastion"),
    "cluster.kubespray.directory": operators("folder of kubespray and of the cluster's journal"),
    "cluster.kubespray.source.version": operators("version of kubespray"),
    "cluster.kubespray.source.url": operators("repository of kubespray"),
    "cluster.kubespray.source.commit": operators("commit of kubespray"),
    "cluster.kubespray.source.folder": operators("folder with kubespray's source"),
    "cluster.kubespray.source.venv": operators("virtual environment of kubespray"),
    "cluster.kubespray.source.python": operators("Python of kubespray"),
    "cluster.kubespray.source.packageIndex": operators("package index for kubespray"),
    "cluster.kubespray.kubernetesVersion": users("Kubernetes version"),
    "cluster.kubespray.containerManager": users("container runtime of the nodes"),
    "cluster.kubespray.networkPlugin": users("network plugin"),
    "cluster.kubespray.calico.encapsulation": operators("encapsulation of packets between nodes"),
    "cluster.kubespray.calico.crossSubnetOnly": operators("encapsulation within a subnet"),
    "cluster.kubespray.calico.mtu": operators("MTU of pods"),
    "cluster.kubespray.proxyMode": operators("mode of kube-proxy"),
    "cluster.kubespray.strictArp": operators("strict ARP"),
    "cluster.kubespray.etcdDeployment": operators("deployment of etcd"),
    "cluster.kubespray.autoRenewCertificates": operators("renewal of certificates"),
    "cluster.kubespray.mirrors.imageRegistry": operators("registry that nodes pull kubespray's images from"),
    "cluster.kubespray.mirrors.filesUrl": operators("file server of the nodes"),
    "cluster.kubespray.mirrors.ubuntuUrl": operators("Ubuntu package repository of the nodes"),
    "cluster.kubespray.mirrors.debianUrl": operators("Debian package repository of the nodes"),
    "cluster.kubespray.mirrors.yumUrl": operators("Red Hat package repository of the nodes"),
    "cluster.kubespray.mirrors.registryMirrors": users("registry mirrors of the nodes"),
    "cluster.kubespray.variables": operators("variables of kubespray"),
    "cluster.kubespray.secretVariables": operators("secret variables of kubespray"),
    "cluster.kubespray.apiServer": operators("address of the API server"),
    "cluster.kubespray.kubeconfigGeneration": operators("generation of the kubeconfig"),
    "cluster.kubespray.drainSeconds": users("time that jobs have when a node is removed or upgraded"),
    "cluster.kubespray.drainGraceSeconds": users("grace period of pods on a drained node"),
    "cluster.kubespray.upgradeSerial": operators("workers that are upgraded at once"),
    "cluster.kubespray.lost": operators("nodes that are removed without drain"),
    "cluster.kubespray.protect": operators("protection of the cluster from pulumi destroy"),
}

_BARE_METAL: Mapping[str, Effect] = {
    "cluster.kubeconfig.kind": operators("credentials for the cluster"),
    "cluster.kubeconfig.context": operators("context of the kubeconfig"),
    "cluster.kubeconfig.path": operators("file of the kubeconfig"),
    "cluster.ssh.user": operators("SSH user on the machines"),
    "cluster.ssh.agentSocket": operators("SSH agent"),
    "cluster.ssh.jump.name": operators("name of the jump host"),
    "cluster.ssh.jump.address": operators("address of the jump host"),
    "cluster.ssh.jump.hostKeys": operators("SSH host keys of the jump host"),
    "cluster.ssh.jump.port": operators("SSH port of the jump host"),
    "cluster.nvidiaContainerToolkit.nvkind": operators("whether nvkind runs on the machines"),
    "cluster.nvidiaContainerToolkit.version": users("version of the NVIDIA container toolkit"),
    "cluster.nvidiaContainerToolkit.runtime": users("container engine with the NVIDIA runtime"),
    "cluster.nvidiaContainerToolkit.cdi": users("CDI of the NVIDIA container toolkit"),
    "cluster.nvidiaContainerToolkit.repository": operators("package repository of the NVIDIA container toolkit"),
    "cluster.nvidiaContainerToolkit.keyUrl": operators("URL of that repository's key"),
    "cluster.nvidiaContainerToolkit.keySha256": operators("digest of that repository's key"),
    "cluster.nvidiaContainerToolkit.checked": operators("check of the NVIDIA container toolkit"),
    "cluster.nodePools.<pool>.accelerator.vendor": users("vendor of the GPUs"),
    "cluster.nodePools.<pool>.accelerator.model": users("accelerator"),
    "cluster.nodePools.<pool>.accelerator.count": users("GPUs of a node"),
    "cluster.nodePools.<pool>.accelerator.partition.compute": users("partition of the GPUs"),
    "cluster.nodePools.<pool>.accelerator.partition.memory": users("memory partition of the GPUs"),
    "cluster.nodePools.<pool>.allocatable.cpu": users("CPU of a node"),
    "cluster.nodePools.<pool>.allocatable.memory": users("memory of a node"),
    "cluster.nodePools.<pool>.allocatable.ephemeralStorage": users("disk of a node"),
    "cluster.nodePools.<pool>.allocatable.pods": users("pods of a node"),
    "cluster.nodePools.<pool>.nodes": operators("node"),
    "cluster.nodePools.<pool>.nodes.<node>.address": operators("address of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.labels": operators("labels of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.site": operators("site of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.roles": operators("roles of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.hostKeys": operators("SSH host keys of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.port": operators("SSH port of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.user": operators("SSH user on a node"),
    "cluster.nodePools.<pool>.nodes.<node>.internalAddress": operators("internal address of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.accessAddress": operators("access address of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.generation": operators("generation of a machine's installation"),
    "cluster.nodePools.<pool>.nodes.<node>.variables": operators("variables of a node"),
    "cluster.nodePools.<pool>.nodes.<node>.secretVariables": operators("secret variables of a node"),
    "devicePlugin.resourceNaming": users("resource name of GPUs"),
    "devicePlugin.namespace": operators("namespace of the AMD device plugin"),
    "devicePlugin.healthCheckSeconds": operators("interval of GPU health checks"),
    "devicePlugin.nodeSelector": operators("nodes of the AMD device plugin"),
    "devicePlugin.tolerations": operators("tolerations of the AMD device plugin"),
    "gpuOperator.namespace": operators("namespace of the GPU operator"),
    "gpuOperator.release": operators("Helm release of the GPU operator"),
    "gpuOperator.version": operators("version of the GPU operator"),
    "gpuOperator.featureDiscovery": operators("node feature discovery of the GPU operator"),
}

_KARPENTER: Mapping[str, Effect] = {
    "cluster.karpenter.version": operators("version of Karpenter"),
    "cluster.karpenter.nodeRepair": users("replacement of unhealthy nodes"),
    "cluster.karpenter.serviceMonitor.labels": operators("labels of Karpenter's ServiceMonitor"),
    "cluster.karpenter.spotServiceLinkedRole": operators("service-linked role for spot instances"),
    "cluster.nodePools.<pool>.instances.categories": users("instance categories"),
    "cluster.nodePools.<pool>.instances.families": users("instance families"),
    "cluster.nodePools.<pool>.instances.sizes": users("instance sizes"),
    "cluster.nodePools.<pool>.instances.cpus": users("vCPUs of instances"),
    "cluster.nodePools.<pool>.instances.generationAbove": users("generation of instances, above"),
    "cluster.nodePools.<pool>.instances.hypervisor": users("hypervisor"),
    "cluster.nodePools.<pool>.instances.architecture": users("architecture"),
    "cluster.nodePools.<pool>.instances.gpuCounts": users("GPUs of instances"),
    "cluster.nodePools.<pool>.capacity": users("capacity"),
    "cluster.nodePools.<pool>.zones": users("zones"),
    "cluster.nodePools.<pool>.requirements": users("requirements on instances"),
    "cluster.nodePools.<pool>.limits.cpu": users("CPU cores of the pool"),
    "cluster.nodePools.<pool>.limits.memory": users("memory of the pool"),
    "cluster.nodePools.<pool>.limits.gpus": users("GPUs of the pool"),
    "cluster.nodePools.<pool>.limits.nodes": users("nodes of the pool"),
    "cluster.nodePools.<pool>.sharing.timeSlicing.replicas": users("jobs on one GPU"),
    "cluster.nodePools.<pool>.sharing.timeSlicing.renameByDefault": users("name of shared GPUs"),
    "cluster.nodePools.<pool>.sharing.timeSlicing.failRequestsGreaterThanOne": users("requests for several shares"),
    "cluster.nodePools.<pool>.sharing.mps.replicas": users("jobs on one GPU"),
    "cluster.nodePools.<pool>.sharing.mig.profile": users("profile of GPU instances"),
    "cluster.nodePools.<pool>.disruption.consolidationPolicy": users("consolidationPolicy"),
    "cluster.nodePools.<pool>.disruption.consolidateAfter": users("consolidateAfter"),
    "cluster.nodePools.<pool>.disruption.budgets": users("disruption budgets"),
    "cluster.nodePools.<pool>.expireAfter": users("expireAfter"),
    "cluster.nodePools.<pool>.terminationGracePeriod": users("terminationGracePeriod"),
    "cluster.nodePools.<pool>.weight": operators("weight among pools"),
    "cluster.nodePools.<pool>.nodeClass": operators("EC2NodeClass"),
    "cluster.nodePools.<pool>.amis": users("AMI"),
    "cluster.nodePools.<pool>.amiFamily": users("AMI family"),
    "cluster.nodePools.<pool>.role": operators("IAM role of the pool's nodes"),
    "cluster.nodePools.<pool>.instanceProfile": operators("instance profile of the pool's nodes"),
    "cluster.nodePools.<pool>.rootVolume": users("root volume"),
    "cluster.nodePools.<pool>.rootVolumeIops": users("IOPS of the root volume"),
    "cluster.nodePools.<pool>.rootVolumeThroughput": users("throughput of the root volume"),
    "cluster.nodePools.<pool>.rootVolumeKey": operators("KMS key of the root volume"),
    "cluster.nodePools.<pool>.imageSnapshot": operators("snapshot with container images"),
    "cluster.nodePools.<pool>.fastImagePull": operators("parallel pull of images"),
    "cluster.nodePools.<pool>.userData": users("user data of the nodes"),
    "cluster.nodePools.<pool>.kubelet.maxPods": users("pods of a node"),
    "cluster.nodePools.<pool>.kubelet.podsPerCore": users("pods per core"),
    "cluster.nodePools.<pool>.kubelet.kubeReserved": users("resources reserved for Kubernetes"),
    "cluster.nodePools.<pool>.kubelet.systemReserved": users("resources reserved for the operating system"),
    "cluster.nodePools.<pool>.kubelet.evictionHard": users("thresholds of immediate eviction"),
    "cluster.nodePools.<pool>.kubelet.imageGcHighThresholdPercent": operators(
        "start of the garbage collection of images"
    ),
    "cluster.nodePools.<pool>.kubelet.imageGcLowThresholdPercent": operators("end of the garbage collection of images"),
    "cluster.nodePools.<pool>.startupTaints": operators("startup taints of the pool's nodes"),
    "cluster.nodePools.<pool>.instanceStore": users("local disks of instances"),
    "cluster.nodePools.<pool>.metadataHopLimit": users("hop limit of instance metadata"),
    "cluster.nodePools.<pool>.reservations": operators("capacity reservations"),
    "cluster.nodePools.<pool>.tags": operators("tags of the pool's instances"),
}

_EKS: Mapping[str, Effect] = {
    "cluster.region": users("region"),
    "cluster.account": operators("AWS account"),
    "cluster.kubernetesVersion": users("Kubernetes version"),
    "cluster.network.kind": operators("VPC"),
    "cluster.network.cidr": operators("address range of the VPC"),
    "cluster.network.zones": operators("zones of the VPC"),
    "cluster.network.natGateways": operators("NAT gateways"),
    "cluster.network.interfaceEndpoints": operators("VPC interface endpoints"),
    "cluster.network.vpcId": operators("ID of the VPC"),
    "cluster.network.privateSubnets": operators("subnets of the nodes"),
    "cluster.endpoint.publicAccessFrom": operators("addresses that reach the public endpoint"),
    "cluster.endpoint.openToTheWorld": operators("confirmation of an endpoint open to the internet"),
    "cluster.endpoint.privateAccessFrom": operators("addresses that reach the private endpoint"),
    "cluster.administrators": operators("administrators of the cluster"),
    "cluster.access": operators("access to the cluster"),
    "cluster.access.<name>.principal": operators("IAM principal of an access entry"),
    "cluster.access.<name>.policies": operators("access policies of an access entry"),
    "cluster.access.<name>.groups": operators("Kubernetes groups of an access entry"),
    "cluster.logs.types": operators("logs of the control plane"),
    "cluster.logs.retentionDays": operators("retention of the control plane's logs"),
    "cluster.systemNodes.instanceType": operators("instance type of the system nodes"),
    "cluster.systemNodes.count": operators("number of system nodes"),
    "cluster.addons": operators("EKS add-ons"),
    "cluster.addonConfiguration": users("configuration of EKS add-ons"),
    "cluster.deletionProtection": operators("protection of the cluster from deletion"),
    "cluster.tags": operators("tags of AWS resources"),
    **_KARPENTER,
    "cluster.smokeWorkload.pool": operators("pool of the smoke workload"),
    "cluster.smokeWorkload.image": operators("image of the smoke workload"),
    "cluster.smokeWorkload.replicas": operators("pods of the smoke workload"),
    "cluster.smokeWorkload.gpus": operators("GPUs of a pod of the smoke workload"),
    "nvidiaPlugin.namespace": operators("namespace of NVIDIA's device plugin"),
    "nvidiaPlugin.version": operators("version of NVIDIA's device plugin"),
    "nvidiaPlugin.failOnInitError": operators("failure of the device plugin without a driver"),
    "nvidiaPlugin.driverRoot": operators("root folder of the driver"),
    "nvidiaPlugin.passDeviceSpecs": operators("device nodes passed to the kubelet"),
    "nvidiaPlugin.deviceListStrategy": users("way in which containers receive their GPUs"),
    "nvidiaPlugin.deviceIdStrategy": users("identifier of GPUs in containers"),
    "nvidiaPlugin.featureDiscovery": operators("GPU labels of nodes"),
    "nvidiaPlugin.runtimeClass": users("RuntimeClass nvidia"),
}

SETTINGS: Mapping[str, Effect] = {**_EVERY_STACK, **_ANY_CLUSTER, **_KUBESPRAY, **_BARE_METAL, **_EKS}
"""Effect of each setting, by its path in docs/settings.md. A section of several kinds has a row for its `kind`."""
