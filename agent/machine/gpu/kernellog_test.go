package gpu

import "testing"

func TestParseKernelLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		seq  uint64
		pci  string
		kind string
		xid  int
	}{
		"3,1200,99000,-;NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": {1200,
			"0000:17:00", kindXid, 79},
		"3,1201,99001,-;NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.": {1201, "0000:3b:00", kindOffBus, 0},
		"4,7,5,c;NVRM: Xid (PCI:00000000:C1:00.0): 48, pid=2":                {7, "00000000:C1:00", kindXid, 48},
		"4,8,5,-;NVRM: Xid (PCI:0000:17:00 GPU-I:05): 94, pid=2, Contained":  {8, "0000:17:00", kindXid, 94},
		"3,9,5,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Fatal, Link 04 Minion Link DLREQ interrupt": {9, "",
			kindSwitch, 0},
		"3,9,5,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress error (First)": {},
		// Of an H200, driver 580.159.04: a store out of bounds, and a trap.
		"4,360,88211643,c;NVRM: Xid (PCI:0000:00:06): 31, pid=680, name=gpuload, channel 0x0000000a, intr 00000000. MMU " +
			"Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x7f00_dead0000. Fault is of type FAULT_PDE " +
			"ACCESS_TYPE_VIRT_WRITE\n": {360, "0000:00:06", kindXid, 31},
		"4,361,92420587,c;NVRM: Xid (PCI:0000:00:06): 43, pid=708, name=gpuload, channel 0x0000000a\n": {361, "0000:00:06",
			kindXid, 43},
		"4,358,88211632,c;NVRM: GPU at PCI:0000:00:06: GPU-70801251-5fa6-fabb-d845-fbffe6aa4c0e\n": {},
		"4,359,88211642,c;NVRM: GPU Board Serial Number: 1650000000000\n":                          {},
		"6,2,1,-;NVRM: Xid (PCI:0000:17:00): 999999999, x":                                         {},
		"6,2,1,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07":                        {},
		"6,2,1,-;usb 1-1: fallen off the bus 0000:17:00":                                           {},
		"NVRM: Xid (PCI:0000:17:00): 79":                                                           {},
		" SUBSYSTEM=pci":                                                                           {},
		"":                                                                                         {},
	} {
		got, ok := parseKernelLine(line)
		if ok != (want.kind != "") {
			t.Errorf("%q: %t", line, ok)
		}
		if ok && (got.Seq != want.seq || got.PCI != want.pci || got.Evidence.Kind != want.kind ||
			got.Evidence.Xid != want.xid) {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func TestSamePCI(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"0000:17:00", "00000000:17:00.0", true}, {"0000:c1:00.0", "00000000:C1:00.0", true},
		{"00010000:00:1e", "10000:00:1E.0", true},
		{"0001:17:00", "0000:17:00", false}, {"", "", false}, {"0000:17:00", "0000:18:00", false},
	} {
		if got := samePCI(c.a, c.b); got != c.same {
			t.Errorf("%q and %q: %t", c.a, c.b, got)
		}
	}
}

func FuzzParseKernelLine(f *testing.F) {
	f.Add("3,1200,99000,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1")
	f.Add("3,1,9,-;NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
	f.Fuzz(func(t *testing.T, line string) {
		got, ok := parseKernelLine(line)
		if ok && (got.PCI == "") != got.Fabric || ok && got.Evidence.Kind == "" {
			t.Errorf("%+v", got)
		}
		if ok && !samePCI(got.PCI, got.PCI) {
			t.Errorf("%q is not itself", got.PCI)
		}
	})
}
