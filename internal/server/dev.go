package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/serve/releases"
)

// devServer is the server inside `muster dev`.
type devServer struct{ *Server }

// StartDev starts the server of `muster dev`: everything on loopback, the sandbox's Stripe, simulated GPUs. mail sends
// its mail. version is the program's.
func StartDev(ctx context.Context, p devstack.ServerParams, mail notify.Mailer, version string,
	log *slog.Logger) (devstack.Server, error) {
	cfg, err := LoadConfig(nil)
	if err != nil {
		return nil, err
	}
	cfg.DatabaseURL, cfg.Secret = SecretText(p.DatabaseURL), SecretText(p.Secret)
	cfg.Listen, cfg.AgentListen, cfg.NATSListen, cfg.MetricsListen = p.Listen, p.AgentListen, p.NATSListen, p.Metrics
	cfg.GatewayListen, cfg.AppsDomain = p.GatewayListen, localApps
	cfg.TLSCert, cfg.TLSKey, cfg.TLSCA = p.TLSCert, p.TLSKey, p.TLSCA
	cfg.SandboxFile, cfg.DemoImage = p.SandboxFile, p.DemoImage
	cfg.mail, cfg.Version = mail, version
	cfg.AgentReleases = p.Releases
	cfg.prepareReleases = func() error { return releases.Pack(p.Releases, p.Bin, version) }
	cfg.RelayListen = p.RelayListen
	cfg.StoreFolder = p.Store
	cfg.AllowSimulated, cfg.BucketAnyAddress = true, true
	cfg.RelistLock = 0           // a developer who breaks a host wants to rent it again
	cfg.StartWindow = 0          // and a command that fails is started as often as it takes
	cfg.SignUpsPerHour = 100_000 // all users have the same address here
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a, err := Start(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return devServer{a}, nil
}

func (s devServer) URL() string         { return s.cfg.PublicURL }
func (s devServer) AgentURL() string    { return s.cfg.AgentURL }
func (s devServer) GatewayAddr() string { return s.cfg.GatewayAddr }

// Account registers a user, or signs them in if the address is registered already, and issues a token with all scopes.
func (s devServer) Account(ctx context.Context, email, name, password string, admin bool) (string, error) {
	p, err := s.Accounts.SignUps.Register(ctx, account.SignUp{Email: email, Name: name, Password: password})
	if fault.Is(err, fault.Conflict) {
		_, p, err = s.Accounts.Sessions.SignIn(ctx, account.SignIn{Email: email, Password: password})
	}
	if err != nil {
		return "", err
	}
	scopes := account.Scopes()
	if admin {
		if err := s.Accounts.SetAdmin(ctx, email, true); err != nil {
			return "", err
		}
		scopes = append(scopes, account.ScopeAdmin)
		if _, p, err = s.Accounts.Sessions.SignIn(ctx, account.SignIn{Email: email, Password: password}); err != nil {
			// Sign in again, now as an admin.
			return "", err
		}
	}
	_, secret, err := s.Accounts.Tokens.Issue(ctx, p, account.NewToken{Name: "muster dev", Scopes: scopes})
	return secret, err
}

func (s devServer) Enrollment(ctx context.Context, operatorToken, name string) (string, error) {
	p, err := s.Accounts.Tokens.Principal(ctx, operatorToken)
	if err != nil {
		return "", err
	}
	e, _, err := s.Hosts.CreateEnrollment(ctx, p, host.NewEnrollment{
		Name:   name,
		Region: "local",
		Fabric: "loopback",
	}, idem.Request{})
	return e.Token, err
}

func (s devServer) SetPrice(ctx context.Context, operatorToken, hostID, price string) error {
	p, h, err := s.operatorsHost(ctx, operatorToken, hostID)
	if err != nil {
		return err
	}
	m, err := money.ParseMicro(price)
	if err != nil {
		return fault.InvalidField("price", "%s", err)
	}
	return s.Market.ChangeHost(ctx, p, h, market.HostChange{Terms: market.Terms{Price: &m}})
}

func (s devServer) Connected(ctx context.Context, operatorToken, hostID string) (bool, error) {
	p, h, err := s.operatorsHost(ctx, operatorToken, hostID)
	if err != nil {
		return false, err
	}
	d, err := s.Hosts.Get(ctx, p, h)
	if err != nil || d.Status.LastSyncAt == nil {
		return false, err
	}
	// A status from before this start may still be "connected" if its server was killed.
	return d.Status.LastSyncAt.After(s.started) && d.Unsellable(time.Now()) == "", nil
}

func (s devServer) operatorsHost(ctx context.Context, operatorToken,
	hostID string) (account.Principal, id.Host, error) {
	p, err := s.Accounts.Tokens.Principal(ctx, operatorToken)
	if err != nil {
		return p, id.Host{}, err
	}
	h, err := id.Parse[id.Host](hostID)
	return p, h, err
}

// ReleaseAll releases every cluster and waits until their hosts have cleaned up.
func (s devServer) ReleaseAll(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := s.releaseOnce(ctx)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d clusters are still being cleaned up: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

func (s devServer) releaseOnce(ctx context.Context) (left int, err error) {
	rows, err := s.db.Pool.Query(ctx, "SELECT id, org_id, state FROM cluster WHERE state NOT IN ('released', 'failed')")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var live []cluster.Cluster
	for rows.Next() {
		var c cluster.Cluster
		var state string
		if err := rows.Scan(&c.ID, &c.Org, &state); err != nil {
			return 0, err
		}
		c.State = lifecycle.State(state)
		live = append(live, c)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	rows.Close()
	for _, c := range live {
		if c.State.Ended() {
			continue
		}
		if _, err := s.Clusters.Rentals.Release(ctx, account.Principal{Org: c.Org}, c.ID); err != nil {
			return len(live), err
		}
	}
	return len(live), nil
}
