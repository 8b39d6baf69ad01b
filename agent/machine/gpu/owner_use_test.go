package gpu

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/agentapi"
)

// Programs that the owner starts on a leased GPU are reported, with the memory that they use beyond what was used
// before; the lease's own processes are not the owner's. The report ends with the program or the lease, and a new lease
// starts without it.
func TestAnOwnersProgramBesideALease(t *testing.T) {
	t.Parallel()
	h, proc := newHost(t, rtx4090, 2), t.TempDir()
	xorg, _ := h.process(t, proc, "Xorg", session)
	job, _ := h.process(t, proc, "python3", container)
	game, end := h.process(t, proc, "steam", session)
	service, _ := h.process(t, proc, "ollama", "0::/system.slice/ollama.service")
	set := func(first ...fakeprofile.Process) {
		t.Helper()
		if err := fakeprofile.SetProcesses(h.path, map[string][]fakeprofile.Process{
			h.uuid(0): first,
			h.uuid(1): {{PID: job, MemMB: 20_000}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	desktop := fakeprofile.Process{PID: xorg, MemMB: 200, Graphics: true}
	set(desktop)
	m := h.start(t, func(c *Config) { c.ProcFS, c.timing.calm = proc, time.Nanosecond })
	leased := make(chan map[string]bool, 1)
	leased <- map[string]bool{h.uuid(0): true, h.uuid(1): true}
	m.Owners.LeasedBy(func() map[string]bool { l := <-leased; leased <- l; return l })
	inventory(t, m)
	if err := m.Leases.NoteBefore(t.Context(), h.uuid(0), h.uuid(1)); err != nil {
		t.Fatal(err)
	}
	beside := func(want map[string]int64) {
		t.Helper()
		eventually(t, "beside the lease", func() (any, bool) {
			inventory(t, m)
			got := m.Owners.OwnerUse()
			ok := len(got) == len(want)
			for uuid, mib := range want {
				ok = ok && got[uuid] == mib<<20
			}
			return got, ok
		})
	}
	set(fakeprofile.Process{PID: xorg, MemMB: 400, Graphics: true}, fakeprofile.Process{PID: job, MemMB: 9000})
	beside(nil) // 200 MiB more is what a desktop may take, and the rest is the lease's
	set(fakeprofile.Process{PID: xorg, MemMB: 300, Graphics: true}, fakeprofile.Process{PID: job, MemMB: 9000},
		fakeprofile.Process{PID: game, MemMB: 4000}, fakeprofile.Process{PID: service, MemMB: 2000})
	beside(map[string]int64{h.uuid(0): 6100})
	inv := inventory(t, m)
	if len(inv.Problems) != 1 || inv.Problems[0].Code != agentapi.ProblemOwnerUse ||
		!strings.Contains(inv.Problems[0].Cause, "GPU 0, which is rented (steam, ollama, Xorg, 6100 MiB more") {
		t.Errorf("%+v", inv.Problems)
	}
	if inv.GPUs[0].InUse != "" || inv.GPUs[0].Health != "healthy" {
		t.Errorf("%+v", inv.GPUs[0])
	}
	end()
	set(desktop, fakeprofile.Process{PID: job, MemMB: 9000})
	beside(nil)
	set(desktop, fakeprofile.Process{PID: service, MemMB: 2000})
	beside(map[string]int64{h.uuid(0): 2000})
	if err := m.Leases.NoteBefore(t.Context(), h.uuid(0)); err != nil { // the next lease finds it there
		t.Fatal(err)
	}
	beside(nil)
	set(desktop, fakeprofile.Process{PID: service, MemMB: 5000})
	beside(map[string]int64{h.uuid(0): 3000})
	<-leased
	leased <- map[string]bool{}
	beside(nil)
}
