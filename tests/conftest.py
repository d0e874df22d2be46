"""Settings shared by every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

hypothesis.settings.register_profile(
    "default",
    deadline=None,
    max_examples=30,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
        hypothesis.HealthCheck.filter_too_much,
    ],
)
hypothesis.settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEXPGPU_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
