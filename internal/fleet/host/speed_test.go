package host_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func at[T any](v T) *T { return &v }

// What a GPU's clocks, links and fans did is stored and read back. An idle GPU stores nothing, and a GPU that runs
// steadily one element for many samples.
func TestSpeedHistory(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	gpu, idle, old := id.New[id.GPU](), id.New[id.GPU](), id.New[id.GPU]()
	start := time.Now().UTC().Truncate(host.TelemetryBucket)
	sample := func(second, util, mhz int, energy int64, clocks ...string) host.Sample {
		return host.SampleOf(agentapi.GPUSample{Util: &util, SMMHz: &mhz, MemMHz: at(2619), Clocks: clocks, Fan: at(40),
			PCIeReplays: at(int64(3)), EnergyMJ: &energy}, start.Add(time.Duration(second)*time.Second))
	}
	batch := func(s ...host.Series) {
		t.Helper()
		if err := host.NewAgents(d, nil).AppendTelemetry(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	batch(
		host.Series{GPU: gpu, Samples: []host.Sample{
			sample(0, 0, 345, 0, "gpu_idle"),
			sample(10, 97, 1980, 1_000, "sw_power_cap"), sample(20, 98, 1965, 2_000, "sw_power_cap"), // like the one before
			sample(30, 97, 1200, 3_000, "hw_slowdown", "hw_thermal_slowdown"),
		}},
		host.Series{GPU: idle, Samples: []host.Sample{sample(0, 0, 345, 0, "gpu_idle"), sample(10, 0, 210, 0)}},
		host.Series{GPU: old, Samples: []host.Sample{
			host.SampleOf(agentapi.GPUSample{Util: at(99), EnergyMJ: at(int64(5))}, start)}},
	)
	batch(host.Series{GPU: gpu, Samples: []host.Sample{
		sample(40, 97, 990, 4_000, "hw_power_brake_slowdown", "of_tomorrow"), sample(50, 0, 345, 5_000, "gpu_idle"),
	}})
	if err := host.TelemetryPartitions(t.Context(), d, 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	var rows, elements, partitions int
	if err := d.Pool.QueryRow(t.Context(), `SELECT count(*), sum(cardinality(at_ms)),
		(SELECT count(*) FROM pg_inherits WHERE inhparent = 'telemetry_speed'::regclass) FROM telemetry_speed`).Scan(&rows,
		&elements, &partitions); err != nil || rows != 1 || elements != 3 || partitions != 5 {
		t.Errorf("%d rows with %d elements, %d partitions: %v", rows, elements, partitions, err)
	}
	read := func(step time.Duration) []host.Series {
		t.Helper()
		got, err := host.Telemetry(t.Context(), d.Q, []id.GPU{gpu, idle, old}, start, start.Add(time.Minute), step)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	speed := func(mhz int, limits host.Limits, energy int64) *host.Speed {
		return &host.Speed{SMMHz: mhz, MemMHz: 2619, Limits: limits, Fan: 40, PCIeReplays: 3, NVLinkErrors: -1,
			EnergyJ: energy}
	}
	got := read(0)
	var speeds []*host.Speed
	for _, s := range got[0].Samples {
		speeds = append(speeds, s.Speed)
	}
	if diff := cmp.Diff([]*host.Speed{
		nil, speed(1980, host.LimitPower, -1), speed(1980, host.LimitPower, 2), speed(1200, host.LimitHot, 3),
		speed(990, host.LimitBrake|host.LimitOther, 4), nil,
	}, speeds); diff != "" {
		t.Error(diff)
	}
	for _, s := range got[1:] {
		if slices.ContainsFunc(s.Samples, func(s host.Sample) bool { return s.Speed != nil }) || len(s.Samples) == 0 {
			t.Errorf("%+v", s.Samples)
		}
	}
	// What slowed the GPU down within a longer step is not lost.
	if coarse := read(time.Minute)[0].Samples; len(coarse) != 1 || coarse[0].Speed.Limits != host.LimitPower|
		host.LimitHot|host.LimitBrake|host.LimitOther || coarse[0].Speed.EnergyJ != 4 {
		t.Errorf("%+v", coarse[0].Speed)
	}
	if s := got[0].Samples; s[1].SlowedBy() != "" || s[4].SlowedBy() != "power brake, other" {
		t.Errorf("%q %q", s[1].SlowedBy(), s[4].SlowedBy())
	}
}
