package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// The table has every code of NVIDIA's catalog once.
func TestXidTable_HasTheWholeCatalog(t *testing.T) {
	t.Parallel()
	var rules []xidRule
	if err := json.Unmarshal(xidTable, &rules); err != nil || len(rules) != len(xids) || len(rules) != 172 {
		t.Fatalf("%d rules, %d Xids: %v", len(rules), len(xids), err)
	}
	buckets := []string{bucketIgnore, bucketNotice, bucketRestartApp, bucketUnused, bucketSuspect, bucketNVLink5,
		bucketResetGPU, bucketReboot}
	for i, r := range rules {
		if r.Xid != i+1 || r.What == "" || !slices.Contains(buckets, r.Bucket) {
			t.Errorf("%+v", r)
		}
	}
}

// Only the codes for which the catalog asks for a reset or a reboot quarantine a GPU, and those that it calls the
// GPU's do when they come again and again. No program's Xid does, nor any that is not known.
func TestXids_OfProgramsNeverQuarantine(t *testing.T) {
	t.Parallel()
	of := func(xid, times int) State {
		v, now := Verdict{State: Healthy}, time.Now()
		for range times {
			v, _ = v.Accuse(XidEvidence(xid), "b", now)
			now = now.Add(time.Minute)
		}
		return v.State
	}
	atOnce := []int{46, 48, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 155, 156, 158, 171, 172}
	inTime := slices.Concat(atOnce, []int{54, 74, 159, 166, 167, 168, 169, 170})
	for xid := range 300 {
		if got := of(xid, 1); (got == Quarantined) != slices.Contains(atOnce, xid) {
			t.Errorf("Xid %d: %s", xid, got)
		}
		if got := of(xid, 9); (got == Quarantined) != slices.Contains(inTime, xid) {
			t.Errorf("Xid %d nine times: %s", xid, got)
		}
	}
	v, now := Verdict{State: Healthy}, time.Now()
	for i := range 3 { // three fatal errors of its links within a day
		now = now.Add(time.Minute)
		if v, _ = v.Accuse(loggedXid(144+i, "fatal"), "b", now); (v.State == Quarantined) != (i == 2) {
			t.Errorf("fatal error %d: %s", i+1, v.State)
		}
	}
	v = Verdict{State: Healthy}
	for _, xid := range []int{70, 94, 4711, 70, 74, 70} { // one of the GPU's among those of programs
		now = now.Add(time.Minute)
		if v, _ = v.Accuse(XidEvidence(xid), "b", now); v.State == Quarantined {
			t.Errorf("Xid %d: %s", xid, v.Reason)
		}
	}
}

// An NVLink error of the fifth generation weighs what the kernel's log says, once: nonfatal ones degrade the GPU, a
// fatal one is as bad as the driver's recovery action, and its announcement by Xid 154 is none of its own.
func TestNVLinkXids_WeighWhatTheKernelsLogSays(t *testing.T) {
	t.Parallel()
	h := newHost(t, "NVIDIA B200", 3)
	fifo := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m := h.start(t, func(c *Config) { c.KernelLog = fifo })
	becomes(t, m, h.uuid(2), Healthy)
	eventually(t, "the log is read", func() (any, bool) { return nil, m.watcher.logHas(149) })
	seq := 0
	raise := func(i, xid int, text string, action int64) {
		t.Helper()
		h.fault(t, i, func(g *fakeprofile.GPU) { g.RaiseXid(int64(xid)); g.RecoveryAction = action })
		seq++
		fmt.Fprint(log, h.GPUs[i].KernelLine(seq, xid, text))
	}
	for i, unit := range []string{"SAW_MVB", "RLW_REMAP", "TLW_CTRL", "TREX", "NVLPW_CTRL", "NETIR_BER_EVENT"} {
		raise(0, 144+i, unit+" Nonfatal XC0 i0 Link 08 (0x00000013 0x00000000 0x00000000 0x00000000)", wire.RecoverNone)
	}
	raise(1, 149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x00000011 0x00000000 0x00000000 0x00000000)", wire.RecoverNone)
	for range 3 {
		raise(1, 154, "GPU recovery action changed from 0x0 (None) to 0x0 (None)", wire.RecoverNone)
	}
	raise(2, 149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x00000011 0x00000000 0x00000000 0x00000000)", wire.RecoverReset)
	raise(2, 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", wire.RecoverReset)
	becomes(t, m, h.uuid(1), Suspect)
	becomes(t, m, h.uuid(2), Quarantined)
	var slower agentapi.HealthEvent
	eventually(t, "degraded", func() (any, bool) {
		events := m.Diagnosis.Pending()
		i := slices.IndexFunc(events, func(e agentapi.HealthEvent) bool { return e.Kind == kindDegraded })
		if i >= 0 {
			slower = events[i]
		}
		return events, i >= 0
	})
	if slower.GPU != h.uuid(0) || !strings.HasPrefix(slower.Detail, "NVLink errors (Xid 14") || slower.State != "healthy" {
		t.Errorf("%+v", slower)
	}
	m.reg.mu.Lock()
	defer m.reg.mu.Unlock()
	for i, want := range []int{0, 1, 2} { // the third's: the line, and the recovery action
		if got := m.reg.mem.GPUs[h.uuid(i)].Strikes; len(got) != want {
			t.Errorf("GPU %d: %+v", i, got)
		}
	}
}

// Recovering the IMEX domain is a matter of several hosts: the GPU is well, and the host's page says what to do.
func TestIMEXDomain_IsNotTheGPUs(t *testing.T) {
	t.Parallel()
	h := newHost(t, "NVIDIA B200", 2)
	m := h.start(t)
	becomes(t, m, h.uuid(1), Healthy)
	inventory(t, m)
	for len(m.Diagnosis.Changed()) > 0 {
		<-m.Diagnosis.Changed()
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RecoveryAction = wire.RecoverIMEX })
	<-m.Diagnosis.Changed()
	inv := inventory(t, m)
	if p := inv.Problems; len(p) != 1 || p[0].Code != "imex_domain" || p[0].Severity != "warn" ||
		!strings.HasSuffix(p[0].Evidence, "GPU 1") || inv.GPUs[1].Health != "healthy" {
		t.Errorf("%+v", inv)
	}
}
