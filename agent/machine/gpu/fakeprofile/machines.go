package fakeprofile

import "fmt"

// Machine is a kind of host that operators have, with its peculiarities.
type Machine struct {
	Name, About string
	// DesktopMiB is how much memory of the first GPU a desktop holds (SetProcesses sets it, with a process of its own).
	DesktopMiB int64
	profile    func(boot int) (*Profile, error)
}

// Profile returns the machine's profile in its boot number boot, counted from 0. Only a cloud VM's GPUs differ from
// boot to boot.
func (m Machine) Profile(boot int) (*Profile, error) { return m.profile(boot) }

// Machines are the kinds of hosts that can be simulated as a whole.
var Machines = []Machine{
	{Name: "hgx-h100", About: "HGX H100: 8 GPUs behind NVSwitches, their fabric registered by the fabric manager.",
		profile: sameEachBoot("NVIDIA H100 80GB HBM3", 8, driver570)},
	{Name: "hgx-b200", About: "HGX B200: 8 GPUs behind NVSwitches.",
		profile: sameEachBoot("NVIDIA B200", 8, driver570)},
	{Name: "hgx-a100", About: "HGX A100: 8 GPUs behind NVSwitches; NVML reports no fabric before Hopper.",
		profile: sameEachBoot("NVIDIA A100-SXM4-80GB", 8, driver550)},
	{Name: "rtx4090-desktop", About: "A desktop with 2 × RTX 4090, of which the first draws the screen.", DesktopMiB: 612,
		profile: sameEachBoot("NVIDIA GeForce RTX 4090", 2, driver550, func(p *Profile) { p.GPUs[0].Display = 1 })},
	{Name: "l40s", About: "A server with 4 × L40S on PCIe.", profile: sameEachBoot("NVIDIA L40S", 4, driver550)},
	{Name: "a100-mig", About: "2 × A100 of which the operator has split the second with MIG.",
		profile: sameEachBoot("NVIDIA A100-SXM4-80GB", 2, driver550, splitSecond)},
	{Name: "gh200", About: "GH200: the GPU's memory is a NUMA node of the kernel's.",
		profile: sameEachBoot("NVIDIA GH200 480GB", 1, driver570)},
	{Name: "gb10", About: "DGX Spark: the GPU has no memory of its own.",
		profile: sameEachBoot("NVIDIA GB10", 1, driver570)},
	{Name: "cloud-l40s", About: "A cloud VM: after each stop and start other GPUs sit in the same PCI slots.",
		profile: func(boot int) (*Profile, error) {
			return Host("NVIDIA L40S", 2, fmt.Sprintf("cloud-l40s boot %d", boot))
		}},
}

// MachineNamed returns the machine of that name; ok is false if there is none.
func MachineNamed(name string) (m Machine, ok bool) {
	for _, m := range Machines {
		if m.Name == name {
			return m, true
		}
	}
	return Machine{}, false
}

func sameEachBoot(model string, count int, changes ...func(*Profile)) func(int) (*Profile, error) {
	return func(int) (*Profile, error) {
		p, err := Host(model, count, "machine "+model)
		if err != nil {
			return nil, err
		}
		for _, change := range changes {
			change(p)
		}
		return p, nil
	}
}

// driver550 is a driver from before the recovery action was introduced (about R555).
func driver550(p *Profile) {
	for i := range p.GPUs {
		p.GPUs[i].RecoveryAction = untold
	}
}

func driver570(p *Profile) { p.Version, p.NVML, p.CUDA = "570.133.20", "12.570.133.20", 12080 }

// splitSecond splits the second GPU into one instance of 3/7 and two of 2/7.
func splitSecond(p *Profile) {
	g := &p.GPUs[1]
	g.MIG = 1
	for i, mib := range []int64{40192, 19968, 19968} {
		g.Instances = append(g.Instances, Instance{fmt.Sprintf("MIG-%s%02d", g.UUID[4:38], i), mib})
	}
}
