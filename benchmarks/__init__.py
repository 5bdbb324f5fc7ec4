"""Measurements that take minutes: latency, peers, scaling, soak. Ratios are measured side by side in one run."""
