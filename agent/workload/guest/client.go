package guest

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Client sends requests to one guest. Each call uses a connection of its own; ctx ends it, and the guest's work for it.
type Client struct{ socket string }

// Dial returns a client of the guest whose socket is at path (leasefiles.Layout.HoldSocket). It does not connect yet.
func Dial(path string) *Client { return &Client{path} }

// Next returns the init's report as soon as its state differs from after.
func (c *Client) Next(ctx context.Context, after State) (Workload, error) {
	a, err := c.call(ctx, Request{Op: "workload", After: after, Wait: true})
	if err != nil {
		return Workload{}, err
	}
	return *a.Workload, nil
}

// KeptWorkload reads the report from the guest's folder (leasefiles.Layout.Guest), for when the guest has died. It
// returns the zero Workload if there is none yet.
func KeptWorkload(guestDir string, ref agentapi.LeaseRef) Workload {
	w, err := readWorkload(filepath.Join(guestDir, workloadFile))
	if err != nil || w.LeaseRef != ref {
		return Workload{LeaseRef: ref}
	}
	return w
}

// Preflight starts a preflight unless one is running, waits for it and returns the figures. A preflight that failed is
// not an error: OK is false and Detail says why. When ctx ends the guest continues to measure, and the next call gets
// the result.
func (c *Client) Preflight(ctx context.Context, r PreflightRequest) (agentapi.Preflight, error) {
	a, err := c.call(ctx, Request{Op: "preflight", Preflight: &r})
	if err != nil {
		return agentapi.Preflight{}, err
	}
	return *a.Preflight, nil
}

// StandBy makes the guest of a node that was measured measure again when another rank asks for it, until the barrier is
// released.
func (c *Client) StandBy(ctx context.Context, r PreflightRequest) error {
	_, err := c.call(ctx, Request{Op: "stand_by", Preflight: &r})
	return err
}

// Withdraw ends a running preflight, or standing by for one. It returns when nothing listens any more. A guest that an
// older agent started does not know the request, and continues to measure.
func (c *Client) Withdraw(ctx context.Context) error {
	_, err := c.call(ctx, Request{Op: "withdraw"})
	if f := fault.From(err); f != nil && strings.Contains(f.Message, unknownRequest) {
		return nil
	}
	return err
}

func (c *Client) call(ctx context.Context, q Request) (Reply, error) {
	conn, err := unixsock.Dial(ctx, c.socket)
	if err != nil {
		return Reply{}, fault.New(fault.Unavailable, "the guest does not answer: %v", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var a Reply
	if err = json.NewEncoder(conn).Encode(q); err == nil {
		err = json.NewDecoder(conn).Decode(&a)
	}
	switch {
	case ctx.Err() != nil:
		return Reply{}, ctx.Err()
	case err != nil:
		return Reply{}, fault.New(fault.Unavailable, "the guest does not answer: %v", err)
	case a.Error != "":
		return Reply{}, fault.New(fault.Unavailable, "the guest: %v", errors.New(a.Error))
	}
	return a, nil
}
