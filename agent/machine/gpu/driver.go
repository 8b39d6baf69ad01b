package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// mpsPipes is the folder in which NVIDIA's Multi-Process Service listens, and which the container toolkit mounts into
// every container that has GPUs.
const mpsPipes = "/tmp/nvidia-mps"

// driver asks the GPUs' driver, through the probe, and notices when it hangs.
type driver struct {
	reg       *registry
	diagnosis *Diagnosis
	probe     *prober
	ctx       context.Context // ends with the Monitor
	hang      hang

	// reg.mu guards these.
	slept time.Duration // as the host's suspensions were last seen
	woke  time.Time     // when the host was first seen to be awake again; zero: it was never suspended
}

// driverProblems returns what is wrong with the driver although it answers.
func (dr *driver) driverProblems(sys wire.System) []agentapi.Problem {
	var out []agentapi.Problem
	if p := dr.replaced(sys); p != nil {
		out = append(out, *p)
	}
	if p := dr.mps(); p != nil && len(sys.Devices) > 0 {
		out = append(out, *p)
	}
	return out
}

var driverVersion = regexp.MustCompile(`\b\d+\.\d+(?:\.\d+)?\b`)

// replaced returns a problem if the driver's libraries were upgraded under its loaded module. The probe, which has the
// old library in memory, goes on and finds nothing wrong, but no new process can use the GPUs.
func (dr *driver) replaced(sys wire.System) *agentapi.Problem {
	b, err := os.ReadFile(filepath.Join(dr.reg.cfg.ProcFS, "driver/nvidia/version"))
	if err != nil || sys.Library == "" {
		return nil
	}
	line, _, _ := strings.Cut(string(b), "\n")
	module := driverVersion.FindString(strings.TrimPrefix(line, "NVRM version:"))
	path := filepath.Join(filepath.Dir(sys.Library), "libnvidia-ml.so.1")
	now := "missing"
	if file, err := filepath.EvalSymlinks(path); err == nil {
		now = driverVersion.FindString(strings.TrimPrefix(filepath.Base(file), "libnvidia-ml.so."))
	} else if !os.IsNotExist(err) {
		return nil
	}
	if module == "" || now == "" || now == module {
		return nil
	}
	p := mismatch(fmt.Sprintf("loaded module %s, %s is %s", module, path, now))
	return &p
}

// mismatch returns the problem of a driver whose library and module have different versions.
func mismatch(evidence string) agentapi.Problem {
	return agentapi.Problem{
		Code:     "driver_mismatch",
		Severity: "bad",
		Cause:    "The NVIDIA driver was upgraded, but the old one is still loaded.",
		Evidence: evidence,
		Fix: "Reboot the host. Without a reboot: drain it, systemctl stop muster-agent nvidia-persistenced " +
			"nvidia-fabricmanager, unload the nvidia modules, load them, and start the three again. To choose the moment " +
			"yourself: apt-mark hold the driver's packages, and leave them out of unattended-upgrades.",
	}
}

// mps returns a problem if NVIDIA's Multi-Process Service runs here, or its folder exists: the container toolkit mounts
// the folder into every container, so renters would share the owner's service.
func (dr *driver) mps() *agentapi.Problem {
	dr.reg.mu.Lock()
	simulated := dr.reg.sys.Simulated
	dr.reg.mu.Unlock()
	var found []string
	pipes := dr.reg.cfg.MPSPipes
	if pipes == "" && !simulated {
		pipes = mpsPipes
	}
	if info, err := os.Stat(pipes); pipes != "" && err == nil && info.IsDir() {
		found = append(found, pipes)
	}
	if !simulated || dr.reg.cfg.MPSPipes != "" {
		names, _ := filepath.Glob(filepath.Join(dr.reg.cfg.ProcFS, "[0-9]*", "comm"))
		for _, path := range names {
			b, err := os.ReadFile(path) // the kernel keeps 15 characters of nvidia-cuda-mps-control and -server
			if name := strings.TrimSpace(string(b)); err == nil && strings.HasPrefix(name, "nvidia-cuda-mps") {
				found = append(found, name)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return &agentapi.Problem{
		Code:     "mps_running",
		Severity: "bad",
		Cause:    "NVIDIA's Multi-Process Service is set up on this host: every node's container would share it.",
		Evidence: strings.Join(slices.Compact(found), ", "),
		Fix:      "End it (echo quit | nvidia-cuda-mps-control) and remove " + mpsPipes + ".",
	}
}

// each sends the same request about several GPUs at once. A sick GPU fails alone.
func each[T any](ctx context.Context, dr *driver, method string,
	uuids []string) (answers map[string]T, failed map[string]error) {
	answers, failed = map[string]T{}, map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, uuid := range uuids {
		wg.Go(func() {
			var v T
			err := dr.call(ctx, method, uuid, &v)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[uuid] = err
				return
			}
			answers[uuid] = v
		})
	}
	wg.Wait()
	return answers, failed
}

// call sends a request about one GPU. A refusal may be evidence against the GPU. (The prober reports hangs.)
func (dr *driver) call(ctx context.Context, method, uuid string, out any) error {
	err := dr.probe.call(ctx, method, uuid, out)
	var refusal *wire.Error
	if errors.As(err, &refusal) {
		if e, ok := dr.callEvidence(refusal); ok {
			dr.diagnosis.accuse(uuid, e)
		}
	}
	return err
}

// asFault converts the error of a failed call for callers: Unavailable with the cause, unless it is a fault already.
func asFault(err error) error {
	if err == nil || fault.From(err) != nil {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, "the GPU cannot be asked: %v", err)
}

func unanswered(failed map[string]error) error {
	for _, err := range failed {
		return fault.Wrap(err, fault.Unavailable, "no GPU answers: %v", err)
	}
	return fault.New(fault.Unavailable, "no GPU answers")
}

// system gets the driver's list and stores it. After an error the Monitor has no valid list until the next answer.
func (dr *driver) system(ctx context.Context) (wire.System, error) {
	var sys wire.System
	err := dr.probe.call(ctx, wire.MethodSystem, "", &sys)
	if err != nil && ctx.Err() != nil {
		return sys, err // the caller has cancelled: nothing learnt
	}
	dr.reg.mu.Lock()
	defer dr.reg.mu.Unlock()
	was := dr.reg.blind != nil
	dr.reg.blind = err
	if err == nil {
		dr.reg.sys = sys
		dr.reg.notePlaces(sys)
		for _, d := range sys.Devices {
			for _, uuid := range d.UUIDs() {
				dr.probe.seenAt(uuid, d.PCI)
			}
		}
	}
	if was != (err != nil) {
		poke(dr.reg.changed)
	}
	return sys, err
}
