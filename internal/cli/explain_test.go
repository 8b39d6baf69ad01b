package cli

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

func TestWhatIsNotFoundIsListedSomewhere(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"no cluster is called train": "see what there is: muster cluster list",
		"host not found":             "see what there is: muster host list",
		"SSH key not found":          "see what there is: muster ssh-key list",
		"token not found":            "see what there is: muster token list",
		"page not found":             "",
	} {
		if got := hint(fault.New(fault.NotFound, "%s", message)); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}

func TestRelaxationsArePrintedAsFlags(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	explain(&b, &fault.Fault{Kind: fault.NoCapacity, Message: "nothing fits", Extra: map[string]any{
		"relaxations": []client.Relaxation{
			{Field: "nodes", From: "4", To: "3", Value: 3, Rate: 57_600_000},
			{Field: "gpu", Value: "gpu_model=H100 vram_gb>=80", Rate: 1_000_000},
		}}})
	for _, want := range []string{"with --nodes=3: 57.60 per hour\n", "with --gpu='gpu_model=H100 vram_gb>=80': 1.00"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
