"""A running model server instead of a machine: the same kind of checks, asked of an Endpoint."""

from model_optimizer.core import Finding, plugins
from model_optimizer.core.endpoint import Endpoint

from .run import examine_subject


def examine_endpoint(endpoint: Endpoint) -> tuple[Finding, ...]:
    """One finding a check of doctor/endpoint_checks, from reachable to a streamed request."""
    return examine_subject(endpoint, plugins.load_all("model_optimizer.doctor.endpoint_checks"))
