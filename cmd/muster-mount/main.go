// Command muster-mount mounts a bucket of an S3-compatible store, or a snapshot of a volume, for a lease. The agent
// starts one process per mount, outside of the lease's containers, and it outlives the agent: the next one adopts it.
//
// What always holds:
//   - Configuration and credentials come from standard input and stay in memory: not in arguments, in the environment,
//     in files or in the log.
//   - For a bucket, it connects only to addresses on the internet, unless the host's operator allows others. For a
//     volume, it sends the requests that the control plane has signed, and no others.
//   - What is written to a bucket lies in the cache folder until it is uploaded: a process that is started again with
//     the folder uploads the rest.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/agent/unixsock"
)

const (
	dataLimit   = 1536 << 20 // bytes of memory, which the kernel enforces
	memoryLimit = 1 << 30    // bytes, which Go tries to keep to
	maxConfig   = 1 << 20
	lockFile    = "lock"
	answerTime  = 5 * time.Second
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", "muster-mount")
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "usage: muster-mount, with its configuration on standard input; muster-agent starts it")
		os.Exit(2)
	}
	if err := run(log); err != nil {
		log.Error("the mount ends", "err", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger) error {
	// Uploads go on when the host's services are stopped in order; the agent ends the process when nothing is left.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	debug.SetMemoryLimit(memoryLimit)
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: dataLimit, Max: dataLimit}); err != nil {
		log.Warn("the process's memory is not limited", "err", err)
	}
	// The agent, which starts it, is protected: a mount must not be, at the cost of other leases.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0); err != nil {
		log.Warn("the process is protected when memory is short", "err", err)
	}
	// The secret must not end in a core file, nor be read by another process of the host's users.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("the process may be dumped", "err", err)
	}
	b, err := io.ReadAll(io.LimitReader(os.Stdin, maxConfig))
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	var cfg wire.Config
	if err := json.Unmarshal(b, &cfg); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	clear(b)
	lock, err := os.OpenFile(filepath.Join(cfg.Cache, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the cache: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // until the process before has ended
		return fmt.Errorf("wait for the process before: %w", err)
	}
	var m mounted
	switch {
	case cfg.Volume != nil:
		if m, err = openVolume(cfg, log); err != nil {
			return err
		}
	case cfg.Bucket != nil:
		os.Clearenv() // neither a proxy nor credentials of the host
		if m, err = open(cfg, log); err != nil {
			return err
		}
	default:
		return errors.New("the configuration names neither a bucket nor a volume")
	}
	l, err := unixsock.Listen(cfg.Socket, 0o600)
	if err != nil {
		return err
	}
	go m.begin()
	err = serve(l, m, log)
	lock.Close()
	return err
}

// mounted is what the process mounts.
type mounted interface {
	begin() // mounts it
	status() wire.State
}

// serve answers with the present state, once per connection.
func serve(l *net.UnixListener, m mounted, log *slog.Logger) error {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return fmt.Errorf("answer the agent: %w", err)
		}
		_ = c.SetDeadline(time.Now().Add(answerTime))
		if err := json.NewEncoder(c).Encode(m.status()); err != nil {
			log.Warn("the agent got no answer", "err", err)
		}
		c.Close()
	}
}
