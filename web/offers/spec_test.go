package offers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/web/page"
)

func fullForm() SpecForm {
	return SpecForm{
		Nodes:         "2",
		GPUs:          "4",
		Image:         "pytorch/pytorch:2.4.0",
		Entrypoint:    "bash -c",
		User:          "app:users",
		Command:       "python 'train me.py'",
		Env:           "EPOCHS=3\nURL=a=b",
		Name:          "train-1",
		Budget:        "50.00",
		DiskGB:        "100",
		Scope:         "fabric",
		OnNodeFailure: "replace",
		Restart:       "on_failure",
		Egress:        "limited",
		Ports:         "8888, 6006/tcp",
		Hours:         "1.5",
		MinGbps:       "10",
		Project:       "vision",
		Runtime:       "runsc",
		DiskLimited:   true,
		ScratchGB:     "200",
		Mounts:        []MountRow{{Volume: "vol_01jd9w6n3qf8vtx2m5k7c4hzrb", Path: "/data", Mode: "ro", Every: "1.5"}},
	}
}

func TestTheFormIsTheWholeSpec(t *testing.T) {
	t.Parallel()
	spec, err := specOf(fullForm(), "gpu_model=H100", true)
	if err != nil {
		t.Fatal(err)
	}
	if *spec.MaxDuration != 5400 || spec.Network.MinGbps != 10 || spec.OnNodeFailure != "replace" ||
		spec.Env["URL"] != "a=b" ||
		!cmp.Equal(spec.Ports, []market.Port{{Port: 8888, Protocol: "http"}, {Port: 6006, Protocol: "tcp"}}) {
		t.Errorf("%+v", spec)
	}
	again := asTyped(spec)
	want := fullForm()
	want.Env = "" // it may hold secrets: it is not written back
	again.Budget = want.Budget
	if d := cmp.Diff(want, again); d != "" {
		t.Errorf("the form that gives the spec (-typed +again):\n%s", d)
	}
}

func TestMistakesInTheFormAreToldBesideTheirField(t *testing.T) {
	t.Parallel()
	for field, spoil := range map[string]func(*SpecForm){
		"nodes":            func(f *SpecForm) { f.Nodes = "two" },
		"gpus_per_node":    func(f *SpecForm) { f.GPUs = "99" },
		"entrypoint":       func(f *SpecForm) { f.Entrypoint = "'' -c" },
		"user":             func(f *SpecForm) { f.User = "no such" },
		"command":          func(f *SpecForm) { f.Command = "python 'train" },
		"env":              func(f *SpecForm) { f.Env = "NVIDIA_VISIBLE_DEVICES=all" },
		"ports":            func(f *SpecForm) { f.Ports = "8888, 99999" },
		"max_duration":     func(f *SpecForm) { f.Hours = "0.001" },
		"network.min_gbps": func(f *SpecForm) { f.MinGbps = "-1" },
		"project":          func(f *SpecForm) { f.Project = "<b>" },
		"on_node_failure":  func(f *SpecForm) { f.OnNodeFailure = "pray" },
	} {
		f := fullForm()
		spoil(&f)
		_, err := specOf(f, "", true)
		if errs := page.FormErrors(err); errs[field] == "" {
			t.Errorf("%s: told %v", field, errs)
		}
	}
	f := fullForm()
	f.Ports = "8888 six"
	if _, err := specOf(f, "", true); page.FormErrors(err)["ports"] == "" {
		t.Error("a port that is no number was taken")
	}
}

// Every entry of a list that is wrong is named, as it was entered, and not only the first.
func TestEveryWrongEntryIsNamed(t *testing.T) {
	t.Parallel()
	f := fullForm()
	f.Ports = "8888, x, 99999, 6006/udp, 70000/tcp, eight"
	f.Env = "EPOCHS=3\nno sign\nNCCL_SOCKET_IFNAME=eth0\nneither"
	f.Nodes, f.DiskGB = "two", "-3"
	_, err := specOf(f, "", true)
	errs := page.FormErrors(err)
	for field, wants := range map[string][]string{
		"ports":   {`"x" is not a port`, `"99999": enter 1 to 65535`, `"6006/udp": the protocol is http or tcp`, `"70000/tcp": enter`, `"eight" is not a port`},
		"env":     {`"no sign" has no '='`, `"neither" has no '='`},
		"nodes":   {"is not a whole number"},
		"disk_gb": {"1 to"},
	} {
		for _, want := range wants {
			if !strings.Contains(errs[field], want) {
				t.Errorf("%s: %q is not in %q", field, want, errs[field])
			}
		}
	}
	if strings.Contains(errs["ports"], `"8888"`) || strings.Contains(errs["ports"], "umber ") {
		t.Errorf("a port that is right is named, or one by its place: %q", errs["ports"])
	}
}
