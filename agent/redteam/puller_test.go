package redteam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// nodeDisk is what the pulls may unpack to, in bytes. It is small because unpacking is what takes the test its time.
const nodeDisk = 100e6

// TestMain is the agent's puller and its overlays, too: they must run on the box, where a connection that one wrongly
// makes stays in the test.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	var err error
	switch os.Args[1] {
	case "pull":
		err = pull(os.Args[2], os.Args[3], os.Args[4:])
	case "join":
		var clusters [][]member
		if err = json.Unmarshal([]byte(os.Args[2]), &clusters); err == nil {
			err = join(clusters)
		}
	case "overlay":
		os.Exit(overlay.Main(os.Args[2:]))
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// realm returns the address of the registry that sends clients that need a token to the i-th place by a scheme.
func realm(scheme string, i int) string {
	if scheme == "https" {
		i += 100
	}
	return fmt.Sprintf("203.0.113.80:%d", 5100+i)
}

// outcome is how a pull ended.
type outcome struct {
	Image  string // as asked for
	ID     string // the engine's; "" when it failed
	Reason string // why for good; "" for a failure that may pass
	Error  string
}

// pull asks the engine at socket for images, one after the other, and writes their outcomes as a line of JSON each.
func pull(socket, dir string, images []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	engine, err := container.New(container.Config{
		Docker:    socket,
		Host:      id.New[id.Host](),
		Simulated: true,
		Log:       quiet,
	})
	if err != nil {
		return err
	}
	defer engine.Close()
	allow := []string{honest, hostile}
	for i := range 100 {
		allow = append(allow, realm("http", i), realm("https", i))
	}
	puller, err := image.New(image.Config{Daemon: engine, Dir: dir, Prefix: "muster-redteam", Allow: allow,
		Free: func() (int64, error) { return 1 << 40, nil }, Now: time.Now, Log: quiet})
	if err != nil {
		return err
	}
	go puller.Serve(ctx)
	for _, name := range images {
		o := outcome{Image: name}
		img, err := puller.Pull(ctx, image.Request{Image: name, MaxBytes: nodeDisk}, func(agentapi.Progress) {})
		o.ID = img.ID
		if err != nil {
			o.Error = err.Error()
		}
		var final *image.Error
		if errors.As(err, &final) {
			o.Reason = final.Reason
		}
		if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
			return err
		}
	}
	return nil
}

// pull pulls images on the box as its agent does.
func (b *box) pull(t *testing.T, images ...string) []outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.host.Command(t.Context(), self, append([]string{"pull", b.docker.Socket,
		filepath.Join(b.host.Dir(), "images")}, images...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pull: %v\n%s%s", err, out, &errs)
	}
	var got []outcome
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var o outcome
		if err := d.Decode(&o); err != nil {
			t.Fatal(err)
		}
		got = append(got, o)
	}
	if len(got) != len(images) {
		t.Fatalf("%d outcomes of %d pulls:\n%s", len(got), len(images), out)
	}
	return got
}
