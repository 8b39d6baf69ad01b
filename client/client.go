// Package client speaks Muster's REST API.
//
//	c, err := client.New("https://muster.example", os.Getenv("MUSTER_TOKEN"))
//	spec := client.Spec{Name: "train", Nodes: 2, GPUsPerNode: 4, Image: "pytorch/pytorch:2.4.0"}
//	cluster, err := c.Clusters.Rent(ctx, spec)
//	cluster, err = c.Clusters.Wait(ctx, cluster.ID, client.Running, nil)
//
// Every failure the server names is a *fault.Fault, whatever the call: switch on fault.KindOf(err). A call that changes
// something carries an idempotency key of its own and is sent again with the same key when its answer was lost, so that
// it takes effect once; WithKey gives it yours, which makes it repeatable after a crash of yours too.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/fault"
)

// Client calls one platform as one principal. Its methods are in its fields, by what they are about: c.Volumes.List.
// It is safe for concurrent use. Use New or Failing to create one.
type Client struct {
	Services

	base  string
	token string
	http  *http.Client
	agent string
}

// Option changes a client that is being made.
type Option func(*Client)

// WithHTTP makes calls through h: for a proxy, a CA of one's own, a test server.
func WithHTTP(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithUserAgent names the program that calls.
func WithUserAgent(s string) Option { return func(c *Client) { c.agent = s } }

// tokenRunes are what a token is made of (RFC 6750).
const tokenRunes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="

// New makes a client of the platform's address (https://muster.example) and an API token; "" for calls that need none.
// Spaces and line breaks around them are ignored.
func New(server, token string, opts ...Option) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(server), "/"))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fault.New(fault.Invalid, "the server's address has to be like https://muster.example")
	}
	token = strings.TrimSpace(token)
	if strings.ContainsFunc(token, func(r rune) bool { return !strings.ContainsRune(tokenRunes, r) }) {
		return nil, fault.New(fault.Unauthorized, "the API token has characters that no token has, such as spaces or "+
			"quotes: copy it whole, muster_pat_…, and nothing else")
	}
	c := &Client{base: u.String(), token: token, http: &http.Client{}, agent: "muster-go"}
	for _, o := range opts {
		o(c)
	}
	c.Services = servicesOf(c)
	return c, nil
}

// Failing returns a client whose calls all fail with err, so that a program can report a bad configuration where it
// first uses the client.
func Failing(err error) *Client {
	c := &Client{base: "http://not.configured", http: &http.Client{Transport: failing{err}}, agent: "muster-go"}
	c.Services = servicesOf(c)
	return c
}

type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// Server is the platform's address.
func (c *Client) Server() string { return c.base }

type keyKey struct{}

// WithKey makes the one call that is made with the context carry this idempotency key.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

const (
	tries     = 4
	maxWait   = 20 * time.Second // before sending again; longer waits are the caller's to decide
	maxAnswer = 64 << 20
)

// call sends one request and reads the JSON answer into out (nil: it is discarded).
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	key := ""
	if method == http.MethodPost {
		if key, _ = ctx.Value(keyKey{}).(string); key == "" {
			key = uuid.NewString()
		}
	}
	for try := 1; ; try++ {
		again, err := c.once(ctx, method, path, query, body, key, out)
		if err == nil || again < 0 || try == tries || again > maxWait {
			return err
		}
		pause := max(again, time.Duration(100+rand.IntN(200))*time.Millisecond<<try)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// once sends the request once. again says how long to wait before it may be sent again; negative: not at all.
func (c *Client) once(ctx context.Context, method, path string, query url.Values, body []byte, key string,
	out any) (again time.Duration, err error) {
	resp, err := c.send(ctx, method, path, query, body, key)
	if err != nil {
		if ctx.Err() != nil {
			return -1, ctx.Err()
		}
		err = c.unreachable(err)
		if fault.Is(err, fault.Unavailable) {
			return 0, err
		}
		return -1, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		f := problemOf(resp)
		switch resp.StatusCode {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
			return f.RetryAfter, f
		}
		return -1, f
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return -1, nil
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, "the answer of %s broke off", c.base)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return -1, fault.Wrap(err, fault.Internal, "%s answers what this client does not understand: is it a Muster "+
			"server, of a version near %s?", c.base, c.agent)
	}
	return -1, nil
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, body []byte,
	key string) (*http.Response, error) {
	target := c.base + "/api/v1" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	req.Header.Set("User-Agent", c.agent)
	return c.http.Do(req)
}

// unreachable is the fault of a request that got no response, with the innermost reason.
func (c *Client) unreachable(err error) error {
	if f := fault.From(err); f != nil { // from Failing
		return f
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fault.Wrap(err, fault.Unavailable, "%s cannot be reached: %s", c.base, err)
}

// problemOf reads a failure. Whatever came, the result says something.
func problemOf(resp *http.Response) *fault.Fault {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p struct {
		Detail string        `json:"detail"`
		Code   fault.Kind    `json:"code"`
		Errors []fault.Field `json:"errors"`
	}
	f := &fault.Fault{Kind: fault.Internal}
	if json.Unmarshal(raw, &p) != nil || p.Code == "" {
		f.Message = fmt.Sprintf("the server answers %s, and not as a Muster server does", resp.Status)
		if resp.StatusCode >= 502 && resp.StatusCode <= 504 {
			f.Kind = fault.Unavailable
		}
	} else {
		f.Kind, f.Message, f.Fields = p.Code, p.Detail, p.Errors
		_ = json.Unmarshal(raw, &f.Extra)
		for _, known := range []string{"title", "status", "detail", "code", "errors"} {
			delete(f.Extra, known)
		}
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		f.RetryAfter = time.Duration(s) * time.Second
	}
	return f
}

// Page is a cut of a list.
type Page[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"` // nil on the last
}

// PageOf selects a page of a list.
type PageOf struct {
	Limit int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"how many items at most"`
	After string `query:"after" maxLength:"200" doc:"next of the page before"`
}

func (p *PageOf) turn(to PageOf) { *p = to }

// All reads all pages of a list: All(ctx, c.Hosts.List, HostsQuery{Retired: true}). It does not use the page that q
// selects.
func All[T, Q any, P interface {
	*Q
	turn(PageOf)
}](ctx context.Context, list func(context.Context, Q) (Page[T], error), q Q) ([]T, error) {
	var out []T
	at := PageOf{Limit: 200}
	for {
		P(&q).turn(at)
		p, err := list(ctx, q)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Items...)
		if p.Next == nil {
			return out, nil
		}
		at.After = *p.Next
	}
}

// path joins the parts of a path, each of them escaped.
func path(parts ...any) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(fmt.Sprint(p)))
	}
	return b.String()
}

// queryOf returns the fields of a struct, and of structs that are embedded in it, by their tag "query". It leaves out
// fields that are zero: the server has a default for each.
func queryOf(v any) url.Values {
	q := url.Values{}
	x := reflect.ValueOf(v)
	for _, f := range reflect.VisibleFields(x.Type()) {
		name, ok := f.Tag.Lookup("query")
		value := x.FieldByIndex(f.Index)
		if !ok || value.IsZero() {
			continue
		}
		if at, ok := value.Interface().(time.Time); ok {
			q.Set(name, at.UTC().Format(time.RFC3339))
			continue
		}
		q.Set(name, fmt.Sprint(value.Interface()))
	}
	return q
}
