package rent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/bench/platform"
)

// load runs do for every number below n on workers goroutines, as fast as they go, and says how long each call took
// and all together. It stops at the first error.
func load(ctx context.Context, workers, n int, do func(ctx context.Context, worker, i int) error) (each []time.Duration, all time.Duration, err error) {
	each = make([]time.Duration, n)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for w := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				at := time.Now()
				if err := do(ctx, w, i); err != nil {
					cancel(err)
				}
				each[i] = time.Since(at)
			}
		})
	}
	wg.Wait()
	return each, time.Since(began), context.Cause(ctx)
}

// client is one keep-alive connection of a renter's program. It is as thin as HTTP/1.1 allows: what it costs is time
// the server does not have, as both run on this machine.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func dial(addr string) (*client, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: c, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

// rent posts a cluster and wants 202. name is the idempotency key and the cluster's name.
func (c *client) rent(r platform.Renter, name string, nodes, gpus int) error {
	body := fmt.Sprintf(`{"name":%q,"nodes":%d,"gpus_per_node":%d,"gpu":"gpu_model=H100 vram_gb>=80","image":"registry.example/train:1",`+
		`"command":["python","train.py"],"env":{"EPOCHS":"3"},"disk_gb":100,"max_duration":7200}`, name, nodes, gpus)
	c.out = fmt.Appendf(c.out[:0], "POST /api/v1/clusters HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", r.Token, name, len(body), body)
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		return fmt.Errorf("rent %s: %s: %s", name, resp.Status, b)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
