# Simulated GPUs for the fake NVML library; see agent/machine/gpu/fakenvml.
[driver]
version = 550.90.07
nvml = 12.550.90.07

[gpu]
uuid = GPU-6f6959bd-dfa4-450f-82ca-6c18bc079355
name = NVIDIA GeForce RTX 4090
vbios = 95.02.3C.00.8C
pci = 00000000:17:00.0
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

[gpu]
uuid = GPU-0659d644-b866-4c5c-8ab9-1e6c1834b44c
name = NVIDIA GeForce RTX 4090
vbios = 95.02.3C.00.8C
pci = 00000000:28:00.0
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
