package fakeprofile

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHostIsDeterministic(t *testing.T) {
	t.Parallel()
	one, err := Host("NVIDIA H100 80GB HBM3", 8, "host-1")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Host("NVIDIA H100 80GB HBM3", 8, "host-1")
	if diff := cmp.Diff(one, again); diff != "" {
		t.Error(diff)
	}
	other, _ := Host("NVIDIA H100 80GB HBM3", 8, "host-2")
	seen := map[string]bool{}
	for _, g := range append(one.GPUs, other.GPUs...) {
		if seen[g.UUID] || len(g.UUID) != 40 || !strings.HasPrefix(g.UUID, "GPU-") {
			t.Errorf("uuid %s", g.UUID)
		}
		seen[g.UUID] = true
	}
	if one.GPU(one.GPUs[3].UUID) != &one.GPUs[3] || one.GPU("GPU-none") != nil {
		t.Error("lookup by uuid")
	}
}

func TestEveryModelFormats(t *testing.T) {
	t.Parallel()
	for _, model := range Models() {
		p, err := Host(model, MaxGPUs, "seed")
		if err != nil {
			t.Fatal(err)
		}
		p.GPUs[2].RaiseXid(79)
		p.GPUs[2].Errors = []Error{{"nvmlDeviceGetPowerUsage", 999}}
		b, err := p.Format()
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		back, err := Parse(b)
		if diff := cmp.Diff(p, back); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", model, err, diff)
		}
	}
	for _, bad := range []struct {
		model string
		count int
	}{{"NVIDIA Abacus", 1}, {"NVIDIA L40S", 0}, {"NVIDIA L40S", MaxGPUs + 1}} {
		if _, err := Host(bad.model, bad.count, ""); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	gpu := "[gpu]\nuuid = GPU-1\npci = 0000:17:00\n"
	for name, text := range map[string]string{
		"unknown key":      gpu + "colour = green\n",
		"unknown section":  "[board]\n",
		"before a section": "uuid = GPU-1\n",
		"out of range":     gpu + "load = 101\n",
		"not a number":     gpu + "load = many\n",
		"empty number":     gpu + "load =\n",
		"no equals sign":   gpu + "lost\n",
		"text too long":    gpu + "name = " + strings.Repeat("x", 96) + "\n",
		"no uuid":          "[gpu]\npci = 0000:17:00\n",
		"twice the uuid":   gpu + gpu,
		"too many GPUs":    strings.Repeat("[gpu]\n", MaxGPUs+1),
		"xid without code": gpu + "xid = 3\n",
		"xid of zero":      gpu + "xid = 1 0\n",
		"too many xids":    gpu + strings.Repeat("xid = 1 79\n", maxXids+1),
		"not text":         gpu + "\x00",
		"too large":        strings.Repeat("#\n", maxFile),
	} {
		if p, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	bad := &Profile{CUDA: 12040, ClockMS: -1, LostHides: 1, GPUs: []GPU{{UUID: "GPU-1\nlost = 1", PCI: "x"}}}
	if err := bad.Save(filepath.Join(t.TempDir(), "p")); err == nil {
		t.Error("a profile that cannot be read back was saved")
	}
}

func TestRaiseXidForgetsTheOldest(t *testing.T) {
	t.Parallel()
	var g GPU
	for range maxXids + 5 {
		g.RaiseXid(13)
	}
	if len(g.Xids) != maxXids || g.Xids[0].Serial != 6 || g.Xids[maxXids-1].Serial != maxXids+5 {
		t.Errorf("%d: %+v", len(g.Xids), g.Xids)
	}
}

// Changes by many at once are all kept.
func TestChangesTakeTurns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "profile")
	p, err := Host("NVIDIA L40S", 2, "seed")
	if err == nil {
		err = p.Save(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := Change(path, func(p *Profile) error { p.GPUs[1].RaiseXid(79); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if p, err = Load(path); err != nil || len(p.GPUs[1].Xids) != 20 {
		t.Errorf("%v: %+v", err, p.GPUs[1].Xids)
	}
}

func TestSetProcessesRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "profile")
	for _, p := range []Process{{PID: 0}, {PID: 1, MemMB: -1}, {PID: 1, Load: 101}} {
		if err := SetProcesses(path, map[string][]Process{"GPU-1": {p}}); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
	if err := SetProcesses(path, map[string][]Process{"GPU-1": {{PID: 9, MemMB: 10, Load: 95}}}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path + ".processes"); err != nil || string(b) != "GPU-1 9 10 95\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// What Parse takes, Format writes so that Parse reads the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte("[driver]\nversion = 1\n\n# hello\n[gpu]\nuuid = GPU-1\npci = 0000:17:00\nload = 5\nxid = 1 79\nerror " +
		"= * 999\n"))
	p, err := Host("NVIDIA H100 80GB HBM3", 2, "fuzz")
	if err != nil {
		f.Fatal(err)
	}
	b, err := p.Format()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			return
		}
		text, err := p.Format()
		if err != nil {
			t.Fatalf("%v\n%q", err, text)
		}
		back, err := Parse(text)
		if diff := cmp.Diff(p, back); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}
