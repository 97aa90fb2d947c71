"""The GitHub Actions Runner Controller (ARC): controller, projects and runner scale sets."""

from .controller import ArcController as ArcController
from .controller import ArcControllerArgs as ArcControllerArgs
from .controller import ControllerReference as ControllerReference
from .project import ExistingSecret as ExistingSecret
from .project import GithubApp as GithubApp
from .project import GithubToken as GithubToken
from .project import ProjectReference as ProjectReference
from .project import RunnerProject as RunnerProject
from .project import RunnerProjectArgs as RunnerProjectArgs
from .scale_set import RunnerScaleSet as RunnerScaleSet
from .scale_set_args import Docker as Docker
from .scale_set_args import KubernetesMode as KubernetesMode
from .scale_set_args import RunnerResources as RunnerResources
from .scale_set_args import RunnerScaleSetArgs as RunnerScaleSetArgs
from .scale_set_args import SecretKey as SecretKey
from .scale_set_args import Volume as Volume
