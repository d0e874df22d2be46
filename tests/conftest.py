"""Settings shared by every test."""

from __future__ import annotations

import os

import hypothesis

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
