package datakills

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/storage/snapd"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
)

// process names, in the environment, which process of the test this is, and config what it needs.
const process, config = "DATAKILLS", "DATAKILLS_CONFIG"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "snapd" { // first: it inherits the environment of the agent
		os.Exit(snapd.Main(os.Args[2:]))
	}
	switch os.Getenv(process) {
	case "server":
		ends(server())
	case "agent":
		ends(agent())
	case "writer":
		ends(write(os.Getenv(config)))
	}
	os.Exit(m.Run())
}

// ends ends a process of the test.
func ends(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(process)+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serverConfig is what the server needs. It listens on file descriptor 3.
type serverConfig struct{ Database, Store, Origin string }

// request is a host's request, as its agent passes it on.
type request struct {
	Host  id.Host
	About agentapi.VolumeRequest
}

// secret seals the keys of data domains, as fleettest's worlds do, and signs requests of the store.
func secret() []byte { return bytes.Repeat([]byte{7}, 32) }

// openVolumes returns the use cases of one more server.
func openVolumes(ctx context.Context, c serverConfig) (*volume.Volumes, *store.Folder, error) {
	d, err := db.Open(ctx, db.Config{URL: c.Database, MaxConns: 4})
	if err != nil {
		return nil, nil, err
	}
	f, err := store.OpenFolder(c.Store, c.Origin, secret())
	if err != nil {
		return nil, nil, err
	}
	box, err := seal.NewBox(secret())
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	return volume.New(d, f, volume.Config{Currency: "USD", Box: box, Grace: time.Millisecond, Log: log}), f, nil
}

// server answers hosts and the store's requests, and collects packs, until it is killed.
func server() error {
	var c serverConfig
	if err := json.Unmarshal([]byte(os.Getenv(config)), &c); err != nil {
		return err
	}
	ctx := context.Background()
	v, f, err := openVolumes(ctx, c)
	if err != nil {
		return err
	}
	go func() {
		for {
			if _, err := v.Collector.Sweep(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "sweep:", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	mux := http.NewServeMux()
	mux.Handle(store.SignedPath, f.Handler())
	mux.HandleFunc("POST /volume", func(w http.ResponseWriter, r *http.Request) {
		var q request
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(v.Hosts.Serve(r.Context(), q.Host, q.About))
	})
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	return http.Serve(l, mux)
}

// agentConfig is what the agent needs.
type agentConfig struct {
	Dir, Server string
	Host        id.Host
}

// agent keeps the process for volumes and attaches what each line of its standard input says, until that ends.
func agent() error {
	var c agentConfig
	if err := json.Unmarshal([]byte(os.Getenv(config)), &c); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	client := snapd.NewClient(snapd.Config{Dir: c.Dir, Command: []string{self, "snapd"}, Server: c.send,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go client.Run(ctx)
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var a snapd.Attached
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		if err != nil {
			return err
		}
		client.Want(a)
	}
}

// send passes a request on to the server.
func (c agentConfig) send(ctx context.Context, q agentapi.VolumeRequest) (reply agentapi.VolumeReply, err error) {
	b, err := json.Marshal(request{c.Host, q})
	if err != nil {
		return reply, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Server+"/volume", bytes.NewReader(b))
	if err != nil {
		return reply, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return reply, errors.New(res.Status)
	}
	return reply, json.NewDecoder(res.Body).Decode(&reply)
}
