# Simulated GPUs for the fake NVML library; see agent/machine/gpu/fakenvml.
[driver]
version = 550.90.07
nvml = 12.550.90.07

[gpu]
uuid = GPU-7fe7ede6-e996-46c2-9048-4c5eeb9a1894
name = NVIDIA A100-SXM4-80GB
serial = 1601280796442
vbios = 92.00.45.00.03
pci = 00000000:17:00.0
arch = 7
cc_major = 8
memory_mib = 81920
reserved_mib = 634
pcie_switch = 1
numa = 0
p2p = 1
nvlinks = 12
nvlink_version = 5
nvlink_remote = switch
ecc = 1
mig = 0
persistence = 1
power_idle_mw = 62000
power_limit_mw = 400000
temp_idle = 30
temp_busy = 62

[gpu]
uuid = GPU-df14d36d-6e85-4d21-8d78-697876205acc
name = NVIDIA A100-SXM4-80GB
serial = 1603292457285
vbios = 92.00.45.00.03
pci = 00000000:28:00.0
arch = 7
cc_major = 8
memory_mib = 81920
reserved_mib = 634
pcie_switch = 1
numa = 0
p2p = 1
nvlinks = 12
nvlink_version = 5
nvlink_remote = switch
ecc = 1
mig = 0
persistence = 1
power_idle_mw = 62000
power_limit_mw = 400000
temp_idle = 30
temp_busy = 62

[gpu]
uuid = GPU-d9d456b1-d3fb-4486-90e9-7cce587e93b1
name = NVIDIA L40S
serial = 1602381847936
vbios = 95.02.66.00.02
pci = 00000000:39:00.0
arch = 8
cc_major = 8
cc_minor = 9
memory_mib = 46068
reserved_mib = 618
numa = 0
p2p = 1
ecc = 1
persistence = 1
power_idle_mw = 34000
power_limit_mw = 350000
temp_idle = 31
temp_busy = 68

[gpu]
uuid = GPU-9477390d-272f-482d-a511-c151601cd6e5
name = NVIDIA GeForce RTX 4090
vbios = 95.02.3C.00.8C
pci = 00000000:4A:00.0
arch = 8
cc_major = 8
cc_minor = 9
memory_mib = 24564
reserved_mib = 346
numa = 0
ecc = 0
persistence = 0
power_idle_mw = 21000
power_limit_mw = 450000
temp_idle = 34
temp_busy = 71
recovery_action = -1
