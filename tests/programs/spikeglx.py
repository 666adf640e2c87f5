"""Recordings as pairs of SpikeGLX's files, opened by neo and SpikeInterface and compared with what was written: spikeglx.py write FOLDER; spikeglx.py
check FOLDER MOUNT; spikeglx.py interface FOLDER MOUNT.

`write` makes the arrays and attributes that SpikeInterface's save(format="zarr") makes, and an array with its own attributes. `check` and `interface`
print how many streams are equal.
"""

import sys
from pathlib import Path

import numpy as np

folder = Path(sys.argv[2])
RATE, GAIN = 30000.390625, 0.195
LENGTHS = [1000, 777]


def traces(length, channels, seed):
    return np.random.default_rng(seed).integers(-(2**15), 2**15, (length, channels), dtype="i2")


def write():
    import zarr

    root = zarr.open_group(folder / "both.zarr", mode="w", zarr_format=2)
    recording = root.create_group("recording", attributes={"sampling_frequency": RATE, "num_segments": len(LENGTHS)})
    recording.create_array("channel_ids", data=np.arange(5))
    properties = recording.create_group("properties")
    properties.create_array("gain_to_uV", data=np.full(5, GAIN))
    properties.create_array("offset_to_uV", data=np.zeros(5))
    for segment, length in enumerate(LENGTHS):
        recording.create_array(f"traces_seg{segment}", data=traces(length, 5, segment), chunks=(300, 2))
    array = root.create_group("other").create_array("run_g2_t7", data=traces(500, 3, 9), chunks=(100, 3))
    array.attrs.update({"_ARRAY_DIMENSIONS": ["time", "channel"], "sampling_rate": 1000, "gain_to_uV": [2.5] * 3})


def same(mount, name, rate, gain, expected):
    from neo.rawio import SpikeGLXRawIO

    reader = SpikeGLXRawIO(dirname=str(mount / "__formats__/spikeglx" / name))
    reader.parse_header()
    assert reader.segment_count(0) == len(expected), reader.header
    channels = reader.header["signal_channels"]
    assert len(channels) == expected[0].shape[1], channels
    assert set(channels["units"]) == {"V"} and np.allclose(channels["gain"] * 1e6, gain, rtol=1e-12, atol=0), channels
    assert set(channels["offset"]) == {0.0}, channels
    assert reader.get_signal_sampling_rate(0) == rate
    for segment, wanted in enumerate(expected):
        assert np.array_equal(reader.get_analogsignal_chunk(0, segment, stream_index=0), wanted), (name, segment)
    return len(expected)


def same_in_spikeinterface(mount, name, rate, gain, expected):
    from spikeinterface.extractors import read_spikeglx

    recording = read_spikeglx(mount / "__formats__/spikeglx" / name, stream_id="nidq")
    assert recording.get_num_segments() == len(expected) and recording.get_sampling_frequency() == rate, recording
    assert np.allclose(recording.get_channel_gains(), gain, rtol=1e-12, atol=0), recording.get_channel_gains()
    assert set(recording.get_channel_offsets()) == {0.0}
    for segment, wanted in enumerate(expected):
        assert np.array_equal(recording.get_traces(segment_index=segment), wanted), (name, segment)
    return len(expected)


def check(mount, same):
    count = same(mount, "recording", RATE, GAIN, [traces(length, 5, segment) for segment, length in enumerate(LENGTHS)])
    count += same(mount, "other", 1000, 2.5, [traces(500, 3, 9)])
    print(count)


if sys.argv[1] == "write":
    write()
else:
    check(Path(sys.argv[3]), {"check": same, "interface": same_in_spikeinterface}[sys.argv[1]])
