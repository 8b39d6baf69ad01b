package hostlink

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nkeys"
)

// Roles of the platform's own connections, one for each NATS account.
const (
	roleAuth     = "auth"
	roleHosts    = "hosts"
	roleReplicas = "replicas"
	roleSys      = "sys"
)

// keys is the keys that all replicas share. They are derived from the platform's secret, so that nothing must be copied
// between machines, and hosts that enrolled at one replica trust all.
type keys struct {
	issuer nkeys.KeyPair            // signs authorisations
	users  map[string]nkeys.KeyPair // by role
	ca     *x509.Certificate
	caKey  ed25519.PrivateKey
	caPEM  string
}

func deriveKeys(secret []byte) (*keys, error) {
	k := &keys{users: map[string]nkeys.KeyPair{}}
	derive := func(what string) ([]byte, error) {
		return hkdf.Key(sha256.New, secret, nil, "muster hostlink v1 "+what, 32)
	}
	pair := func(prefix nkeys.PrefixByte, what string) (nkeys.KeyPair, error) {
		raw, err := derive(what)
		if err != nil {
			return nil, err
		}
		seed, err := nkeys.EncodeSeed(prefix, raw)
		if err != nil {
			return nil, err
		}
		return nkeys.FromSeed(seed)
	}
	var err error
	if k.issuer, err = pair(nkeys.PrefixByteAccount, "issuer"); err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	for _, role := range []string{roleAuth, roleHosts, roleReplicas, roleSys} {
		if k.users[role], err = pair(nkeys.PrefixByteUser, role); err != nil {
			return nil, fmt.Errorf("derive keys: %w", err)
		}
	}
	raw, err := derive("ca")
	if err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	return k, k.makeCA(raw)
}

// makeCA creates the CA certificate. It is deterministic, because Ed25519 signatures are and serial number and times
// are fixed.
func (k *keys) makeCA(seed []byte) error {
	k.caKey = ed25519.NewKeyFromSeed(seed)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Muster host link"},
		NotBefore: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2075, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.caKey.Public(), k.caKey)
	if err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	k.ca, err = x509.ParseCertificate(der)
	k.caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return err
}

const leafLife = 90 * 24 * time.Hour

// issue creates a certificate for this process, as both client and server.
func (k *keys) issue(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "muster"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		if ip := net.ParseIP(n); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, k.ca, &key.PublicKey, k.caKey)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// serverTLS returns a TLS configuration with a certificate from the platform's CA, renewed at half of its lifetime.
func (k *keys) serverTLS(names []string, now func() time.Time) (*tls.Config, error) {
	first, err := k.issue(names, now())
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	present := func() (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if now().Before(first.Leaf.NotAfter.Add(-leafLife / 2)) {
			return first, nil
		}
		fresh, err := k.issue(names, now())
		if err != nil {
			return nil, err
		}
		first = fresh
		return first, nil
	}
	pool := x509.NewCertPool()
	pool.AddCert(k.ca)
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    pool, ClientCAs: pool,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return present() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return present() },
	}, nil
}
