package rent

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/musterhq/muster/bench/platform"
)

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
	c.out = fmt.Appendf(c.out[:0], "POST /api/v1/clusters HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer "+
		"%s\r\nIdempotency-Key: %s\r\n"+
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
