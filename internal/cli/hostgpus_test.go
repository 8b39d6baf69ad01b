package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// What a host measured of NVLink is on its operator's screen, with GPU and date, and in the offer that renters find.
func TestNVLinkAsMeasured(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	h := p.sell(4, "2.00")
	if out := p.ok("host", "show", h); strings.Contains(out, "over NVLink") {
		t.Errorf("before anything was measured:\n%s", out)
	}
	if _, err := p.db.Pool.Exec(t.Context(), "UPDATE gpu "+
		"SET busbw_nvlink = CASE WHEN idx = 2 THEN 2433.7 ELSE 2981.4 END, "+
		"busbw_nvlink_at = '2026-11-24T02:10:00Z'"); err != nil {
		t.Fatal(err)
	}
	const want = "NVIDIA H100 80GB HBM3: 2434 Gbit/s over NVLink from each GPU to the next, GPU 2 is the slowest, " +
		"measured at 2026-11-24 02:10:00"
	if out := p.ok("host", "show", h); !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
	if out := p.ok("offers", "busbw_nvlink >= 2400", "-o", "wide"); !strings.Contains(out, "2400") {
		t.Errorf("not found:\n%s", out)
	}
	if out := p.ok("offers", "busbw_nvlink > 2400"); strings.Contains(out, "H100") {
		t.Errorf("found as faster than it is:\n%s", out)
	}
}

// muster host metrics prints the newest reading of each GPU within the time that --last gives, and what slows it down.
func TestHostMetrics(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("op@example.com")
	h := p.sell(2, "2.00")
	const none = "No reading of a GPU in this time."
	if out := p.ok("host", "metrics", h); !strings.Contains(out, none) {
		t.Errorf("of a host that did nothing:\n%s", out)
	}
	var gpu id.GPU
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT id FROM gpu WHERE idx = 1").Scan(&gpu); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-20 * time.Minute)
	if err := host.NewAgents(p.db, nil).AppendTelemetry(t.Context(), []host.Series{{GPU: gpu, Samples: []host.Sample{
		{At: at.Add(-10 * time.Minute), Util: 99, MemMB: 1024, PowerW: 690, TempC: 60,
			Speed: &host.Speed{SMMHz: 1980, MemMHz: -1, Limits: host.LimitPower, Fan: -1, PCIeReplays: -1, NVLinkErrors: -1}},
		{At: at, Util: 93, MemMB: 2048, PowerW: 412, TempC: -1,
			Speed: &host.Speed{SMMHz: 990, MemMHz: -1, Limits: host.LimitBrake, Fan: 45, PCIeReplays: 2, NVLinkErrors: -1}},
	}}}); err != nil {
		t.Fatal(err)
	}
	fields := func(args ...string) []string {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(p.ok(append([]string{"host", "metrics", h}, args...)...)), "\n")
		if len(lines) != 2 {
			t.Fatalf("not one reading:\n%s", strings.Join(lines, "\n"))
		}
		return strings.Fields(lines[1])
	}
	row := strings.Join(fields("--last", "1h", "--step", "10s"), " ")
	if !strings.HasPrefix(row, "1 ") || !strings.HasSuffix(row, " 93 % 2048 MiB 412 W – 990 MHz power brake") {
		t.Errorf("the newest reading: %q", row)
	}
	if wide := strings.Join(fields("-o", "wide"), " "); !strings.Contains(wide, " – 45 % 990 MHz power brake") {
		t.Errorf("with the fan: %q", wide)
	}
	if out := p.ok("host", "metrics", h, "--last", "5m"); !strings.Contains(out, none) {
		t.Errorf("of the last five minutes:\n%s", out)
	}
	if out := p.ok("host", "metrics", h, "-o", "yaml"); !strings.Contains(out, "sm_mhz: 1980") ||
		!strings.Contains(out, "sm_mhz: 990") || !strings.Contains(out, "pcie_replays: 2") {
		t.Errorf("all readings:\n%s", out)
	}
	if r := p.run("", "host", "metrics", h, "--last", "soon"); r.code != 2 {
		t.Errorf("exit %d: %s", r.code, r.errs)
	}
}
