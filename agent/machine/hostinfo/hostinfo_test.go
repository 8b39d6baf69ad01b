package hostinfo

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

func TestFill(t *testing.T) {
	t.Parallel()
	var inv agentapi.Inventory
	Fill(&inv)
	if inv.BootID == "" || inv.Kernel == "" || inv.Arch == "" || inv.CPUCores < 1 || inv.RAMMB < 1 ||
		len(inv.Problems) != 0 {
		t.Errorf("%+v", inv)
	}
}

func TestBootMSRises(t *testing.T) {
	t.Parallel()
	first := BootMS()
	if first <= 0 || BootMS() < first {
		t.Errorf("%d", first)
	}
}

func TestDiskFree(t *testing.T) {
	t.Parallel()
	if _, err := DiskFreeGB(t.TempDir()); err != nil {
		t.Error(err)
	}
	if _, err := DiskFreeGB("/nonexistent"); err == nil {
		t.Error("space on a path that is not there")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n": "Debian GNU/Linux 12 (bookworm)",
		"PRETTY_NAME='Arch Linux'":                                 "Arch Linux",
		"PRETTY_NAME=Alpine\n":                                     "Alpine",
		"NAME=x":                                                   "",
	} {
		if got := osName(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	model, cores := cpuFacts("processor\t: 0\nmodel name\t: AMD EPYC 9654\n\nprocessor\t: 1\nmodel name\t: AMD EPYC " +
		"9654\n")
	if model != "AMD EPYC 9654" || cores != 2 {
		t.Errorf("%q, %d", model, cores)
	}
	if got := memTotalMB("MemTotal:       24683000 kB\nMemFree: 1 kB\n"); got != 24104 {
		t.Errorf("%d", got)
	}
	for _, broken := range []string{"", "MemTotal: lots", "x"} {
		if got := memTotalMB(broken); got != 0 {
			t.Errorf("%q: %d", broken, got)
		}
	}
}
