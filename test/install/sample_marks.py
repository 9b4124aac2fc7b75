"""Tests of a user, for the pytest plugin: named for what is to become of each."""

import pytest


@pytest.mark.zeroute(limit_peak="64MiB", no_leaks=True)
def test_passes():
    import device
    device.free(device.allocate(32 << 20))


@pytest.mark.zeroute(limit_peak="16MiB")
def test_takes_too_much():
    import device
    device.free(device.allocate(32 << 20))


@pytest.mark.zeroute(no_leaks=True)
def test_leaks():
    import device
    device.allocate(1 << 20)


@pytest.mark.zeroute(limit="8MiB")
def test_is_refused_by_the_limit():
    import device
    with pytest.raises(AssertionError):
        device.allocate(32 << 20)


@pytest.mark.zeroute(limit_peak="1GiB")
def test_fails_by_itself():
    assert 1 == 2


def test_without_a_mark():
    pass
