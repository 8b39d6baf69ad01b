package link

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Samples of a host without leases are sent if a reading has changed noticeably since the last that were sent, however
// slowly, and otherwise once in agentapi.CalmTelemetry.
func TestCalm(t *testing.T) {
	t.Parallel()
	at := func(util, temp int, mem, power int64) agentapi.GPUSample {
		return agentapi.GPUSample{GPU: "GPU-0", Util: &util, TempC: &temp, MemUsed: &mem, PowerMW: &power}
	}
	still := at(1, 35, 1<<29, 70_000)
	unknown := still
	unknown.PowerMW = nil
	other := still
	other.GPU = "GPU-1"
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		samples []agentapi.GPUSample
		after   time.Duration
		want    bool
	}{
		{"the same", []agentapi.GPUSample{still}, 10 * time.Second, false},
		{"noise", []agentapi.GPUSample{at(9, 38, 1<<29+1<<20, 80_000)}, 10 * time.Second, false},
		{"the same, later", []agentapi.GPUSample{still}, agentapi.CalmTelemetry, true},
		{"the same, before the earliest time", []agentapi.GPUSample{still}, agentapi.CalmTelemetry*4/5 - 1, false},
		{"utilisation", []agentapi.GPUSample{at(11, 35, 1<<29, 70_000)}, 10 * time.Second, true},
		{"temperature fell", []agentapi.GPUSample{at(1, 30, 1<<29, 70_000)}, 10 * time.Second, true},
		{"memory", []agentapi.GPUSample{at(1, 35, 1<<30, 70_000)}, 10 * time.Second, true},
		{"power", []agentapi.GPUSample{at(1, 35, 1<<29, 95_000)}, 10 * time.Second, true},
		{"a reading is not known any more", []agentapi.GPUSample{unknown}, 10 * time.Second, true},
		{"another GPU", []agentapi.GPUSample{other}, 10 * time.Second, true},
		{"one more GPU", []agentapi.GPUSample{still, other}, 10 * time.Second, true},
		{"a GPU less", nil, 10 * time.Second, true},
	} {
		var calm Calm
		if !calm.Due([]agentapi.GPUSample{still}, start) {
			t.Fatal("the first samples are not sent")
		}
		calm.Sent([]agentapi.GPUSample{still}, start)
		if got := calm.Due(c.samples, start.Add(c.after)); got != c.want {
			t.Errorf("%s: sent: %v, want %v", c.name, got, c.want)
		}
	}
	var calm Calm
	calm.Sent([]agentapi.GPUSample{still}, start)
	for temp := 35; temp < 40; temp++ { // compared with what was sent, not with what was read last
		if calm.Due([]agentapi.GPUSample{at(1, temp, 1<<29, 70_000)}, start.Add(10*time.Second)) {
			t.Errorf("%d °C are sent after 35", temp)
		}
	}
	if !calm.Due([]agentapi.GPUSample{at(1, 40, 1<<29, 70_000)}, start.Add(10*time.Second)) {
		t.Error("40 °C are not sent after 35")
	}
}
