package server

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/fault"
)

// A server does not start in a currency whose smallest unit is not a hundredth: it would charge a hundred times too
// much, or a tenth.
func TestACurrencyWithoutCentsIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	for code, good := range map[string]bool{"EUR": true, "JPY": false, "KWD": false, "IDR": false, "usd": false} {
		cfg, err := LoadConfig(map[string]string{"MUSTER_CURRENCY": code})
		if err != nil {
			t.Fatal(err)
		}
		err = cfg.Validate() // other settings are missing here
		refused := slices.ContainsFunc(fault.From(err).Fields,
			func(f fault.Field) bool { return f.Location == "MUSTER_CURRENCY" })
		if refused == good {
			t.Errorf("%s: %+v", code, fault.From(err).Fields)
		}
	}
}
