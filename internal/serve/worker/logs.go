package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
)

// Streams opens a stream to a host, like dialback.Dialer.Open. The caller must close the stream.
type Streams func(ctx context.Context, host id.Host, d agentapi.Dial) (io.ReadCloser, error)

// logs lists and stores the kept logs of hosts. *cluster.Logs implements it.
type logs interface {
	Kept(ctx context.Context, perHost, limit int) ([]cluster.KeptLog, error)
	Store(ctx context.Context, node id.Node, epoch int, content []byte, truncated bool) error
	Postpone(ctx context.Context, node id.Node, epoch int) error
}

const (
	logsAtOnce   = 16               // hosts
	logsPerHost  = 4                // per host and pass, one after the other
	logsPerPass  = 64               // from all hosts
	logTimeLimit = 30 * time.Second // for one log
	maxKeptBytes = 256 << 20        // of one log from its host; only the last cluster.MaxLog bytes are stored
	// logLock is the advisory lock that keeps replicas from fetching the same logs. No other lock may have this number,
	// because a pass may take minutes.
	logLock = 727293
)

// collectLogs fetches logs of ended runs from the hosts that keep them. A host learns from the reply to its next sync
// that a log is stored. A failing host does not delay the logs of other hosts: each host's logs are fetched one after
// the other, and after a failure the host's remaining logs wait for the next pass.
func collectLogs(ctx context.Context, d *db.DB, c logs, s Streams) (did int, err error) {
	err = d.Alone(ctx, logLock, func(ctx context.Context) error {
		kept, err := c.Kept(ctx, logsPerHost, logsPerPass)
		if err != nil {
			return err
		}
		hosts := map[id.Host][]cluster.KeptLog{}
		for _, k := range kept {
			hosts[k.Host] = append(hosts[k.Host], k)
		}
		var mu sync.Mutex
		var failed []error
		var g errgroup.Group
		g.SetLimit(logsAtOnce)
		for _, logs := range hosts {
			g.Go(func() error {
				for _, k := range logs {
					err := collectLog(ctx, c, s, k)
					if err != nil {
						err = errors.Join(err, c.Postpone(ctx, k.Node, k.Ref.Epoch))
					}
					mu.Lock()
					if err == nil {
						did++
					} else {
						failed = append(failed, err)
					}
					mu.Unlock()
					if err != nil {
						return nil
					}
				}
				return nil
			})
		}
		_ = g.Wait()
		return errors.Join(failed...)
	})
	return did, err
}

func collectLog(ctx context.Context, c logs, s Streams, k cluster.KeptLog) error {
	ctx, cancel := context.WithTimeout(ctx, logTimeLimit)
	defer cancel()
	stream, err := s(ctx, k.Host, agentapi.Dial{LeaseRef: k.Ref, Purpose: agentapi.PurposeKeptLog})
	if err != nil {
		return fmt.Errorf("kept log %s on %s: %w", k.Ref, k.Host, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	defer stream.Close()
	content, truncated, err := tail(io.LimitReader(stream, maxKeptBytes), cluster.MaxLog)
	if err != nil {
		return fmt.Errorf("kept log %s on %s: %w", k.Ref, k.Host, err)
	}
	return c.Store(ctx, k.Node, k.Ref.Epoch, content, truncated)
}

// tail reads r to its end and returns its last whole lines, at most limit bytes. truncated is true if earlier lines are
// missing.
func tail(r io.Reader, limit int) (content []byte, truncated bool, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var kept []byte
	for {
		line, err := in.ReadSlice('\n')
		kept = append(kept, line...)
		// Let kept grow to twice the limit before truncating it, so that each byte is moved at most once.
		if len(kept) > 2*limit {
			kept, truncated = lastLines(kept, limit), true
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
			continue
		case !errors.Is(err, io.EOF):
			return nil, truncated, err
		}
		if len(kept) > limit {
			kept, truncated = lastLines(kept, limit), true
		}
		return kept, truncated, nil
	}
}

// lastLines returns the last whole lines of b, at most limit bytes.
func lastLines(b []byte, limit int) []byte {
	for i := len(b) - limit; i < len(b); i++ {
		if b[i-1] == '\n' {
			return append([]byte(nil), b[i:]...)
		}
	}
	return nil
}
