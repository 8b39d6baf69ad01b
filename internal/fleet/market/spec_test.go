package market

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func TestSpecDefaults(t *testing.T) {
	t.Parallel()
	s, err := ParseSpec([]byte(`{"image":"busybox","project":null,"network":null,"budget":null,"interruptible":null,"template":null}`))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultSpec()
	want.Image = "busybox"
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
}

// TestSpecOfTheContract reads the example of the REST API and writes it back.
func TestSpecOfTheContract(t *testing.T) {
	t.Parallel()
	in := `{"name":"train-1","project":null,"labels":{"a":"b"},"nodes":2,"gpus_per_node":4,"gpu":"gpu_model=H100 vram_gb>=80",
		"image":"pytorch/pytorch:2.4.0","restart":"on_failure","egress":"limited","entrypoint":["env"],"user":"1000:1000",
		"command":["python","train.py"],
		"env":{"EPOCHS":"3"},
		"ports":[{"port":8888,"protocol":"http"}],"disk_gb":100,"ssh_key_ids":["key_01jd9w6n3q0000000000000001"],
		"max_price_per_hour":"12.00",
		"max_duration":7200,"budget":"50.00","network":{"scope":"fabric","min_gbps":10},"on_node_failure":"replace","interruptible":false,"template":null}`
	s, err := ParseSpec([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if s.Nodes != 2 || *s.MaxPricePerHour != 12_000_000 || *s.Budget != 50*money.Unit || s.Duration() != 7200 ||
		s.Network.Scope != ScopeFabric || s.GPUs() != 8 {
		t.Errorf("%+v", s)
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseSpec(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, again, cmpopts.EquateComparable(id.SSHKey{})); d != "" {
		t.Error(d)
	}
}

func TestSpecNamesEveryFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ json, want string }{
		{`{}`, "image"},
		{`[]`, ""},
		{`{"image":`, ""},
		{`{"image":"UPPER CASE"}`, "image"},
		{`{"image":"a:b:c"}`, "image"},
		{`{"image":"b","colour":1,"nodes":"2","budget":12.5}`, "budget colour nodes"},
		{`{"image":"b","nodes":0,"gpus_per_node":17,"disk_gb":0}`, "nodes gpus_per_node disk_gb"},
		{`{"image":"b","nodes":129}`, "nodes"},
		{`{"image":"b","nodes":1.5}`, "nodes"},
		{`{"image":"b","nodes":99999999999999999999}`, "nodes"},
		{`{"image":"b","gpu":"gpu=1"}`, "gpu"},
		{`{"image":"b","env":{"1X":"","NVIDIA_VISIBLE_DEVICES":"all","OK":"a\u0000b"}}`,
			"env env.NVIDIA_VISIBLE_DEVICES env.OK"},
		{`{"image":"b","env":{"A":1}}`, "env"},
		{`{"image":"b","env":["A"]}`, "env"},
		{`{"image":"b","ports":[{"port":0},{"port":80,"protocol":"udp"},{"port":80},{"prot":1}]}`, "ports[3].prot"},
		{`{"image":"b","ports":[{"port":0},{"port":80,"protocol":"udp"},{"port":80}]}`,
			"ports[0].port ports[1].protocol ports[2].port"},
		{`{"image":"b","ports":8080}`, "ports"},
		{`{"image":"b","restart":"always","egress":"none","on_node_failure":"panic","network":{"scope":"rack"}}`,
			"restart egress on_node_failure network.scope"},
		{`{"image":"b","network":{"scope":"any","min_gbps":-1}}`, "network.min_gbps"},
		{`{"image":"b","runtime":"kata","disk_limited":"yes"}`, "disk_limited"},
		{`{"image":"b","runtime":"kata"}`, "runtime"},
		{`{"image":"b","scratch_gb":-1}`, "scratch_gb"},
		{`{"image":"b","network":{"speed":1}}`, "network.speed"},
		{`{"image":"b","interruptible":true,"template":"x"}`, "interruptible template"},
		{`{"image":"b","budget":"0","max_price_per_hour":"-1","max_duration":59}`, "max_price_per_hour max_duration budget"},
		{`{"image":"b","max_price_per_hour":"9999999999999"}`, "max_price_per_hour"},
		{`{"image":"b","max_price_per_hour":"0.0000001","budget":"0.0000000001"}`, "budget max_price_per_hour"},
		{`{"image":"b","max_price_per_hour":"1000000.000001","budget":"1000000000.000000001"}`, "max_price_per_hour budget"},
		{`{"image":"b","max_price_per_hour":"12 EUR","budget":"€5"}`, "budget max_price_per_hour"},
		{`{"image":"b","labels":{"a b":"c","ok":"\u0007"}}`, "labels labels.ok"},
		{`{"image":"b","name":"../etc"}`, "name"},
		{`{"image":"b","name":"cl_train"}`, "name"},
		{`{"image":"b","name":"ls_"}`, "name"},
		{`{"image":"b","command":["","x"]}`, "command[0]"},
		{`{"image":"b","user":"app user"}`, "user"},
		{`{"image":"b","user":"root:"}`, "user"},
		{`{"image":"b","user":"-u"}`, "user"},
		{`{"image":"b","command":"sleep 1"}`, "command"},
		{`{"image":"b","ssh_key_ids":["cl_01jd9w6n3q0000000000000001"]}`, "ssh_key_ids"},
		{`{"image":"b","ssh_key_ids":[""]}`, "ssh_key_ids[0]"},
		{`{"image":"b","registry_auth":{"username":"u"}}`, "registry_auth"},
		{fmt.Sprintf(`{"image":"b","env":{"A":%q}}`, strings.Repeat("x", maxEnvString-1)), "env.A"},
		{fmt.Sprintf(`{"image":"b","env":{"A":%q}}`, strings.Repeat("x", maxEnvBytes)), "env.A env"},
		{fmt.Sprintf(`{"image":"b","env":{"A":%q}}`, strings.Repeat("x", agentapi.GPUBytes)), "env"},
		{fmt.Sprintf(`{"image":"b","env":{"A":%q}}`, strings.Repeat("\u2028", agentapi.GPUBytes/6)), "env"},
		{`{"image":"b","command":["` + strings.Repeat(`\u0001`, 10_000) + `"]}`, "command"},
		{fmt.Sprintf(`{"image":"b","nodes":128,"command":[%q]}`, strings.Repeat("x", 20_000)), "nodes"},
		{fmt.Sprintf(`{"image":%q}`, strings.Repeat("x", 513)), "image"},
	} {
		_, err := ParseSpec([]byte(c.json))
		f := fault.From(err)
		if f == nil || f.Kind != fault.Invalid {
			t.Errorf("%.80s: %v", c.json, err)
			continue
		}
		var got []string
		for _, field := range f.Fields {
			got = append(got, field.Location)
		}
		want := strings.Split(c.want, " ")
		if !slices.Equal(got, want) {
			t.Errorf("%.80s: faults at %q, want %q", c.json, got, want)
		}
	}
}

func TestOverrideTakesWhatChangesNoPrice(t *testing.T) {
	t.Parallel()
	s := DefaultSpec()
	s.Image, s.Env = "busybox", map[string]string{"A": "1"}
	got, err := s.Override([]byte(`{"command":["true"],"env":{"B":"2"},"name":"x"}`))
	if err != nil || got.Command[0] != "true" || got.Env["B"] != "2" || len(got.Env) != 1 || got.Image != "busybox" ||
		s.Env["A"] != "1" {
		t.Errorf("%+v %v", got, err)
	}
	for _, name := range []string{"nodes", "gpus_per_node", "gpu", "disk_gb", "network", "max_price_per_hour",
		"max_duration", "interruptible", "template"} {
		_, err := s.Override([]byte(`{"` + name + `":null}`))
		if f := fault.From(err); f == nil || len(f.Fields) != 1 || f.Fields[0].Location != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSplitTakesTheSecretsOut(t *testing.T) {
	t.Parallel()
	s := DefaultSpec()
	s.Env = map[string]string{"TOKEN": "hunter2"}
	s.RegistryAuth = &RegistryAuth{Username: "u", Password: "hunter3"}
	open, secrets := s.Split()
	b, err := json.Marshal(open)
	if err != nil || strings.Contains(string(b), "hunter") || open.Env["TOKEN"] != Mask {
		t.Errorf("%s %v", b, err)
	}
	if d := cmp.Diff(s, open.With(secrets)); d != "" {
		t.Error(d)
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(`{"image":"busybox","nodes":2,"ports":[{"port":1}],"network":{"scope":"host"},"budget":"1.5","env":{"A":"b"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSpec(b)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseSpec(out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if d := cmp.Diff(s, again, cmpopts.EquateComparable(id.SSHKey{})); d != "" {
			t.Fatal(d)
		}
		if _, err := s.Request(id.Org{}); err != nil {
			t.Fatal(err)
		}
	})
}
