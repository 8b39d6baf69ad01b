package platform

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// CPU is processor time used so far.
type CPU struct {
	Own      time.Duration // by this process
	Postgres time.Duration // by the PostgreSQL server with all its backends; 0 when it runs elsewhere
}

// Sub is what was used since an earlier reading.
func (c CPU) Sub(earlier CPU) CPU { return CPU{c.Own - earlier.Own, c.Postgres - earlier.Postgres} }

// Meter reads processor times.
type Meter struct{ postmaster int }

// NewMeter finds the processes of the server at base, if it runs on this machine.
func NewMeter(ctx context.Context, base string) (*Meter, error) {
	c, err := pgx.Connect(ctx, base)
	if err != nil {
		return nil, fmt.Errorf("connect to the PostgreSQL server for benchmarks: %w", err)
	}
	defer func() { _ = c.Close(ctx) }()
	var backend int
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return nil, err
	}
	m := &Meter{}
	if f := stat(backend); f != nil && strings.HasPrefix(f[0], "postgres") {
		m.postmaster, _ = strconv.Atoi(f[2])
	}
	return m, nil
}

// Read is the processor time used up to now.
func (m *Meter) Read() CPU {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	out := CPU{Own: time.Duration(u.Utime.Nano() + u.Stime.Nano())}
	if m.postmaster == 0 {
		return out
	}
	ticks := sum(stat(m.postmaster), 12, 16) // its own and that of the backends that ended
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range paths {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if f := stat(pid); f != nil && f[2] == strconv.Itoa(m.postmaster) {
			ticks += sum(f, 12, 14)
		}
	}
	out.Postgres = time.Duration(ticks) * (time.Second / ticksPerSecond)
	return out
}

// ticksPerSecond is USER_HZ, 100 on every Linux.
const ticksPerSecond = 100

// stat is /proc/pid/stat from the name on: name, state, parent, …; nil when there is no such process.
func stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(b), "(")
	name, rest, _ := strings.Cut(rest, ") ")
	return append([]string{name}, strings.Fields(rest)...)
}

// sum adds the fields from to before end.
func sum(fields []string, from, end int) (n int) {
	for i := from; i < end && i < len(fields); i++ {
		v, _ := strconv.Atoi(fields[i])
		n += v
	}
	return n
}

// Processors is how many this process may use.
func Processors() int { return runtime.GOMAXPROCS(0) }
