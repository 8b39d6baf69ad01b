// Package heap sets how often the garbage collector of a server runs.
//
// Go's own rule collects when the heap has doubled. A server with 40 MB of live memory that answers a thousand requests
// a second then collects dozens of times a second, and spends a third of its processor time on it. This package lets
// more garbage gather while little memory is live, and returns to Go's rule as live memory grows: so a replica with ten
// thousand hosts needs no more memory than before.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	garbage  = 256 << 20 // bytes that may gather between two collections while little is live
	most     = 400       // per cent of live memory that may gather, however little is live
	least    = 100       // Go's own rule
	ofCgroup = 90        // per cent of the control group's limit from which on it is collected whatever is live
)

var once sync.Once

// Tune applies the rule to this process from now on. GOGC and GOMEMLIMIT, if they are set, count instead of the part
// that each is about. Without GOMEMLIMIT, memory is bounded to a part of what the control group (version 2) allows.
func Tune() { once.Do(tune) }

func tune() {
	if _, set := os.LookupEnv("GOMEMLIMIT"); !set {
		if limit := cgroupLimit("/proc/self/cgroup", "/sys/fs/cgroup"); limit > 0 {
			debug.SetMemoryLimit(limit / 100 * ofCgroup)
		}
	}
	if _, set := os.LookupEnv("GOGC"); !set {
		follow(debug.SetGCPercent)
	}
}

// cycle is an object that every collection finds unused.
type cycle struct {
	set func(percent int) int
	now int
}

// follow sets the percentage now and after each collection after which it is another.
func follow(set func(percent int) int) { (&cycle{set: set}).ended() }

func (c *cycle) ended() {
	if p := percent(live()); p != c.now {
		c.now = p
		c.set(p)
	}
	runtime.SetFinalizer(c, (*cycle).ended)
}

// live returns the bytes that the last collection found in use.
func live() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// percent returns how much garbage may gather beside so many live bytes, in per cent of them. It is rounded down to
// tens, so that it does not change with every collection: each change stops the process for a moment.
func percent(live uint64) int {
	if live == 0 {
		return most
	}
	return int(max(least, min(most, garbage*100/live/10*10)))
}
