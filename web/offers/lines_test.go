package offers

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/web/page"
)

// The lines beside the form never contain a value of the environment, nor registry credentials.
func TestLines_NoSecrets(t *testing.T) {
	t.Parallel()
	f := fullForm()
	f.Env = "HF_TOKEN=s3cret\nQUOTE=it's"
	spec, err := specOf(f, "gpu_model=H100", true)
	if err != nil {
		t.Fatal(err)
	}
	spec.RegistryAuth = &market.RegistryAuth{Username: "robot", Password: "s3cret"}
	site := &page.Site{Config: page.Config{PublicURL: "https://muster.example/"}}
	cli, curl := page.CreateLine(spec), site.CurlLine(spec)
	for _, line := range []string{cli, curl} {
		if strings.Contains(line, "s3cret") || strings.Contains(line, "robot") || strings.Contains(line, "it's") {
			t.Errorf("a secret in %s", line)
		}
	}
	for _, want := range []string{"$MUSTER_TOKEN", `"HF_TOKEN": "'"$HF_TOKEN"'"`, "https://muster.example/api/v1/clusters "} {
		if !strings.Contains(curl, want) {
			t.Errorf("no %s in %s", want, curl)
		}
	}
}

// A masked value of an ended cluster's environment is not rented as if it were the value.
func TestEnvOf_RefusesTheMask(t *testing.T) {
	t.Parallel()
	f := fullForm()
	f.Env = envLines(market.Spec{Env: map[string]string{"HF_TOKEN": "x"}})
	_, err := specOf(f, "", true)
	if errs := page.FormErrors(err); !strings.Contains(errs["env"], "HF_TOKEN") {
		t.Errorf("%v", errs)
	}
}
