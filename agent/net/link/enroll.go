package link

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// EnrollConfig configures an enrolment.
type EnrollConfig struct {
	URL       string // the platform's address for agents: https://…; http only on loopback
	Token     string // secret, single use
	CA        []byte // PEM of the CA that verifies the address; nil = the system's roots
	StateDir  string // folder for the identity
	Inventory agentapi.Inventory
	Ephemeral bool // the machine may vanish, or come back with other GPUs
}

// ReadToken reads an enrolment token from a file or, for "-", from stdin.
func ReadToken(path string, stdin io.Reader) (string, error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", fault.Wrap(err, fault.Invalid, "the token file cannot be read")
		}
		defer f.Close()
		stdin = f
	}
	b, err := io.ReadAll(io.LimitReader(stdin, 1024))
	if err != nil {
		return "", fault.Wrap(err, fault.Invalid, "the token cannot be read")
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fault.New(fault.Invalid, "the token is empty")
	}
	return token, nil
}

// Enroll registers the host with the platform and stores its identity. It returns a Conflict if the host is already
// enrolled, and the platform's own fault if it refuses.
func Enroll(ctx context.Context, cfg EnrollConfig) (*Identity, error) {
	origin, err := originOf(cfg.URL)
	if err != nil {
		return nil, err
	}
	if known, err := Load(cfg.StateDir); err == nil {
		return nil, fault.New(fault.Conflict, "this host is enrolled already as %s (%s)", known.Name, known.Host)
	} else if !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	pair, attest, err := makeKeys(cfg.StateDir)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "make the host's keys in %s", cfg.StateDir)
	}
	req, err := request(origin, cfg, pair, attest)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "make the enrolment's proofs")
	}
	reply, err := post(ctx, origin, cfg.CA, req)
	if err != nil {
		return nil, err
	}
	host, err := id.Parse[id.Host](reply.Host)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the platform's answer to the enrolment is not understood")
	}
	i := &Identity{Host: host, Origin: origin, Ephemeral: cfg.Ephemeral, EnrollReply: *reply, link: pair, attest: attest}
	if err := i.save(cfg.StateDir); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "enrolled as %s, but the identity cannot be written to %s", host,
			filepath.Join(cfg.StateDir, identityFile))
	}
	return i, nil
}

// originOf returns scheme://host[:port] of an address that hosts may enrol at.
func originOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || (u.Path != "" && u.Path != "/") {
		return "", fault.New(fault.Invalid, "%q is not the address of a platform: want https://host", address)
	}
	if u.Scheme == "http" {
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return "", fault.New(fault.Invalid, "the token would be readable on the way: enrol over https")
		}
	} else if u.Scheme != "https" {
		return "", fault.New(fault.Invalid, "%q is not the address of a platform: want https://host", address)
	}
	return u.Scheme + "://" + u.Host, nil
}

func request(origin string, cfg EnrollConfig, pair nkeys.KeyPair,
	attest ed25519.PrivateKey) (*agentapi.EnrollRequest, error) {
	public, err := pair.PublicKey()
	if err != nil {
		return nil, err
	}
	attestPublic := attest.Public().(ed25519.PublicKey)
	proof := agentapi.EnrollProof(origin, cfg.Token, public, attestPublic)
	linkProof, err := pair.Sign(proof)
	if err != nil {
		return nil, err
	}
	return &agentapi.EnrollRequest{Token: cfg.Token, LinkKey: public, AttestKey: attestPublic,
		Proof: ed25519.Sign(attest, proof), LinkProof: linkProof, Inventory: cfg.Inventory,
		Ephemeral: cfg.Ephemeral}, nil
}

func post(ctx context.Context, origin string, ca []byte, req *agentapi.EnrollRequest) (*agentapi.EnrollReply, error) {
	client, err := platformClient(ca)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "write the enrolment")
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, origin+agentapi.EnrollPath, bytes.NewReader(body))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the platform's address is not usable")
	}
	hr.Header.Set("Content-Type", "application/json")
	res, err := client.Do(hr)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the platform at %s does not answer", origin)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the platform's answer broke off")
	}
	if res.StatusCode/100 != 2 {
		return nil, problem(res.StatusCode, b)
	}
	var reply agentapi.EnrollReply
	if err := json.Unmarshal(b, &reply); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the platform's answer to the enrolment is not understood")
	}
	return &reply, nil
}

// platformClient returns an HTTP client for the platform's address, verified with ca; nil = the system's roots.
func platformClient(ca []byte) (*http.Client, error) {
	roots, err := pool(string(ca))
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			Proxy:           http.ProxyFromEnvironment,
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		},
		// Redirects are refused, so that the token goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// problem parses an RFC 9457 document.
func problem(status int, b []byte) error {
	var doc struct {
		Code   fault.Kind `json:"code"`
		Title  string     `json:"title"`
		Detail string     `json:"detail"`
	}
	if json.Unmarshal(b, &doc) != nil || doc.Title+doc.Detail == "" {
		return fault.New(fault.Unavailable, "the platform answered the enrolment with status %d", status)
	}
	if doc.Code == "" {
		doc.Code = fault.Unavailable
	}
	if doc.Detail == "" {
		doc.Detail = doc.Title
	}
	return fault.New(doc.Code, "the platform refused the enrolment: %s", doc.Detail)
}

// pool returns the certificates of a PEM text, or nil (the system's) for an empty one.
func pool(pem string) (*x509.CertPool, error) {
	if pem == "" {
		return nil, nil
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM([]byte(pem)) {
		return nil, fault.Wrap(errors.New("no certificate in the PEM text"), fault.Invalid, "the CA is not readable")
	}
	return p, nil
}
