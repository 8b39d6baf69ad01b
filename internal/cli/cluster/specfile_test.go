package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func TestReadSpec_YAML(t *testing.T) {
	t.Parallel()
	var got client.Spec
	err := readSpec("train.yaml", []byte(`
# a training
name: train
nodes: 2
gpus_per_node: 4
gpu: gpu_model=H100 vram_gb>=80
image: pytorch/pytorch:2.4.0
command: [python, train.py, --epochs, "3"]
env: {EPOCHS: 3, DEBUG: true, DAY: 2026-01-01}
labels:
  team: vision
ports:
  - port: 8888
    protocol: http
budget: 20
max_price_per_hour: 57.60
max_duration: 2h
network: {scope: fabric, min_gbps: 12.5}
`), &got)
	if err != nil {
		t.Fatal(err)
	}
	budget, price, duration := money.Nano(20_000_000_000), money.Micro(57_600_000), int64(7200)
	want := client.Spec{
		Name: "train", Nodes: 2, GPUsPerNode: 4, GPU: "gpu_model=H100 vram_gb>=80", Image: "pytorch/pytorch:2.4.0",
		Command: []string{"python", "train.py", "--epochs", "3"},
		Env:     map[string]string{"EPOCHS": "3", "DEBUG": "true", "DAY": "2026-01-01"},
		Labels:  map[string]string{"team": "vision"}, Ports: []client.Port{{Port: 8888, Protocol: "http"}},
		Budget: &budget, MaxPricePerHour: &price, MaxDuration: &duration,
		Network: &client.Network{Scope: "fabric", MinGbps: 12.5},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestReadSpec_Errors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "spec is empty",
		"- a":                               "spec:1: want fields",
		"name: a\n\nimgae: b":               `spec:3: there is no field "imgae"; did you mean "image"?`,
		"name: a\nnodes: two":               "spec:2: nodes: want a whole number",
		"name: a\nnodes: 1.5":               "spec:2: nodes: want a whole number",
		"name: a\ncommand: python":          "spec:2: command: want a list",
		"name: a\nports:\n- {prot: 1}":      `spec:3: there is no field "prot"`,
		"name: a\nname: b":                  "spec:2: the field \"name\" stands twice",
		"max_duration: soon":                "spec:1: max_duration: want whole seconds",
		"name: [":                           "spec: line 1",
		"---\nname: a\n---\nname: b":        "several documents",
		`{"image": `:                        "spec: line",
		"a: &a [1,1]\nb: [*a,*a]":           `there is no field "a"`,
		strings.Repeat("a: {", 40) + "}":    "spec: ",
		"name: a\nlabels: {a: [1]}":         "spec:2: labels",
		"name: " + strings.Repeat("x", 2e6): "at most",
	} {
		err := readSpec("spec", []byte(text), new(client.Spec))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// Aliases that refer to each other must not cost more than the file is long.
func TestReadSpec_AliasBomb(t *testing.T) {
	t.Parallel()
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		p := string(rune('0' + i - 1))
		bomb += "a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + strings.Repeat("*a"+p+",", 8) + "*a" + p +
			"]\n"
	}
	if err := readSpec("bomb", []byte(bomb), new(client.Spec)); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}
