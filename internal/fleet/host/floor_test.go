package host

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestVersionFloors(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var floors []floor
	b := &pgx.Batch{}
	queueFloors(b, &floors)
	if err := db.Send(t.Context(), d.Q, b); err != nil {
		t.Fatal(err)
	}
	later := floor{component: "driver", branch: "550.", least: "550.163.1", reason: "a bulletin",
		noticed: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), blocksFrom: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	floors = append(floors, later)
	for name, c := range map[string]struct {
		inv            agentapi.Inventory
		severity, says string
	}{
		"old toolkit":               {agentapi.Inventory{ToolkitVersion: "1.17.7"}, "bad", "CVE-2025-23266"},
		"new toolkit":               {agentapi.Inventory{ToolkitVersion: "1.18.0"}, "", ""},
		"old runc":                  {agentapi.Inventory{RuncVersion: "1.1.5+ds1"}, "warn", "1.2.8"},
		"mended runc":               {agentapi.Inventory{RuncVersion: "1.2.8"}, "", ""},
		"old runc 1.3":              {agentapi.Inventory{RuncVersion: "1.3.2"}, "warn", "1.3.3"},
		"mended runc 1.3":           {agentapi.Inventory{RuncVersion: "1.3.3"}, "", ""},
		"driver, in grace":          {agentapi.Inventory{Driver: "550.90.07"}, "warn", "2027-01-01"},
		"driver of before May 2026": {agentapi.Inventory{Driver: "580.126.20"}, "warn", "CVE-2026-24196"},
		"mended driver":             {agentapi.Inventory{Driver: "580.159.03"}, "", ""},
		"mended driver, LTS":        {agentapi.Inventory{Driver: "535.309.01"}, "", ""},
		"newest branch, old":        {agentapi.Inventory{Driver: "595.44.06"}, "warn", "595.71.05"},
		"another branch":            {agentapi.Inventory{Driver: "570.1.1"}, "", ""},
		"not reported":              {agentapi.Inventory{}, "", ""},
		"simulated":                 {agentapi.Inventory{ToolkitVersion: "1.0.0", Simulated: true}, "", ""},
	} {
		got := floorProblems(&c.inv, floors)
		if len(got) > 1 || (len(got) == 1) != (c.severity != "") {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		if len(got) == 1 && (got[0].Severity != c.severity || !strings.Contains(got[0].Cause+got[0].Fix, c.says)) {
			t.Errorf("%s: %+v", name, got[0])
		}
	}
}
