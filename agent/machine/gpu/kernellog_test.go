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
		"4,9,5,-;NVRM: Xid (0000:03:00): 13, Channel 00000001": {9,
			"0000:03:00", kindXid, 13}, // of an old driver
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

// The lines are those of a driver for NVLink 5; the word for the severity is what counts.
func TestParseKernelLine_KnowsSeverities(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		weight State
		slower bool
	}{
		"149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000)": {Suspect, false},
		"149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x00000013 0x00000000)":                   {Healthy, true},
		"145, RLW_REMAP Non-fatal XC0 i0 Link 00 (0x00000004 0x00000001)":                        {Healthy, true},
		"146, TLW_RX/TLW_RX_PIPE0 nonfatal XC0 i0 Link 00 (0x0000000a 0x00000001)":               {Healthy, true},
		"149, pid=7, name=Nonfatal, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)": {Suspect, false},
		"149, pid=7, name=a, X Fatal, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x00000013)":      {Healthy, true},
		"149, pid='<unknown>', name=<unknown>, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00":          {Healthy, true},
		"144, pid=7, name=x, SAW nonfatal, SAW_MVB":                                              {Suspect, false},
		"144, pid=7, name=nonfatal":                  {Suspect, false},
		"144, SAW_MVB":                               {Suspect, false},
		"74, pid=1, name=python, Nonfatal":           {Suspect, false}, // not of NVLink 5
		"31, pid=1, name=nonfatal, Channel 00000010": {Healthy, false},
		"154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)": {Healthy, false},
	} {
		got, ok := parseKernelLine("4,8,5,-;NVRM: Xid (PCI:0000:04:00): " + text)
		if !ok || got.Evidence.Weight != want.weight || (got.Evidence.Slower != "") != want.slower {
			t.Errorf("%q: %t, %+v", text, ok, got.Evidence)
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
