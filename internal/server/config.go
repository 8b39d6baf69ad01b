package server

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caarlos0/env/v11"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/serve/releases"
)

// Config holds all settings of `muster server`, which come from the environment; flags set the same fields. Secrets
// come from the environment only, and are never printed.
type Config struct {
	DatabaseURL SecretText `env:"MUSTER_DATABASE_URL"`
	DBConns     int32      `env:"MUSTER_DB_CONNS" envDefault:"32"`
	Secret      SecretText `env:"MUSTER_SECRET"` // base64, at least 32 bytes; the same on every replica
	// SecretPrevious is also accepted while Secret changes; it seals nothing. It requires LinkSecret.
	SecretPrevious SecretText `env:"MUSTER_SECRET_PREVIOUS"`
	// LinkSecret derives the keys of the host link and, without RelaySecret, of relays; "" = Secret.
	LinkSecret SecretText `env:"MUSTER_LINK_SECRET"`

	// DemoImage is what the built-in templates start on a development platform; "" = images of public registries.
	DemoImage string `env:"-"`

	Listen    string `env:"MUSTER_LISTEN" envDefault:"127.0.0.1:8080"` // pages and REST
	PublicURL string `env:"MUSTER_PUBLIC_URL" envDefault:""`           // address for people; default http://LISTEN
	// TrustedProxies are proxies in front of this server, as CIDRs, whose statements about client addresses are trusted. A
	// proxy that is not listed counts as one client in limits per address.
	TrustedProxies []netip.Prefix `env:"MUSTER_TRUSTED_PROXIES"`

	AgentListen string `env:"MUSTER_AGENT_LISTEN" envDefault:"127.0.0.1:8443"` // hosts: enrolment and streams, TLS
	// AgentURL is the address for hosts; default https://AGENT_LISTEN.
	AgentURL string `env:"MUSTER_AGENT_URL" envDefault:""`
	// AgentReleases is a folder as scripts/release fills it: the server offers the agent in it to hosts that enrol, with
	// an install script. "" = none is offered.
	AgentReleases string `env:"MUSTER_AGENT_RELEASES"`
	// StreamURL is the address of this replica for hosts; default AgentURL.
	StreamURL  string `env:"MUSTER_ADVERTISE_STREAM_URL" envDefault:""`
	NATSListen string `env:"MUSTER_NATS_LISTEN" envDefault:"127.0.0.1:4222"` // embedded NATS, TLS
	// NATSPublic are the addresses of NATS for hosts, tls:// or wss://, one for each server or that of a load balancer;
	// default tls://NATS_LISTEN.
	NATSPublic []string `env:"MUSTER_NATS_PUBLIC_URL"`
	NATSURL    string   `env:"MUSTER_NATS_URL" envDefault:""` // an external NATS instead of the embedded one
	// NATSRouteListen is the host:port at which other replicas' embedded NATS servers connect.
	NATSRouteListen string `env:"MUSTER_NATS_ROUTE_LISTEN"`
	NATSRouteURL    string `env:"MUSTER_NATS_ROUTE_URL"`         // its address for other replicas: nats-route://host:port
	TLSCert         string `env:"MUSTER_TLS_CERT" envDefault:""` // PEM files for the agent and NATS listeners
	TLSKey          string `env:"MUSTER_TLS_KEY" envDefault:""`
	// TLSCA is the CA that hosts use to verify the platform; "" = the system's.
	TLSCA string `env:"MUSTER_TLS_CA" envDefault:""`
	// GatewayListen is the host:port of SSH into clusters; "" = this replica serves none.
	GatewayListen string `env:"MUSTER_GATEWAY_LISTEN" envDefault:""`
	// AppsDomain is the domain of clusters' HTTP ports, such as apps.muster.example; every name below it must resolve to
	// LISTEN.
	AppsDomain string `env:"MUSTER_APPS_DOMAIN" envDefault:""`
	// GatewayAddr is the host:port of SSH for people, even if other replicas serve it; default GATEWAY_LISTEN.
	GatewayAddr string `env:"MUSTER_GATEWAY_ADDR" envDefault:""`
	// private address of /metrics and /debug/pprof
	MetricsListen string `env:"MUSTER_METRICS_LISTEN" envDefault:"127.0.0.1:9464"`

	// Relays lists the relays that carry traffic between hosts that cannot reach each other: host:port (UDP), as hosts
	// reach them.
	Relays      []string `env:"MUSTER_RELAYS"`
	RelayListen string   `env:"MUSTER_RELAY_LISTEN"` // UDP; if set, this process is a relay, too
	// RelaySecret is base64 of at least 32 bytes, the same on servers and relays; "" = derived from MUSTER_SECRET.
	RelaySecret SecretText `env:"MUSTER_RELAY_SECRET"`
	RelayMbps   int        `env:"MUSTER_RELAY_MBPS" envDefault:"2000"` // rate limit of one rank

	ReplicaName  string `env:"MUSTER_REPLICA" envDefault:""` // default: the machine's name
	Currency     string `env:"MUSTER_CURRENCY" envDefault:"USD"`
	HostSharePPM int    `env:"MUSTER_HOST_SHARE_PPM" envDefault:"850000"`
	// NewHoldback is how long the earnings of new operators wait before they are payable; 0: see newHoldback.
	NewHoldback time.Duration `env:"MUSTER_NEW_OPERATOR_HOLDBACK"`
	// RelistLock is how long a host is not offered after a run ended by its fault; 0: it is offered at once.
	RelistLock time.Duration `env:"MUSTER_RELIST_LOCK" envDefault:"1h"`
	// StartWindow is how long a start counts in the start quota after it ended; 0: starts are not limited. StartFree is
	// how many GPU-seconds in that time an organisation may hold that has paid for nothing.
	StartWindow time.Duration `env:"MUSTER_START_WINDOW" envDefault:"6h"`
	StartFree   int64         `env:"MUSTER_START_FREE" envDefault:"10800"`
	// StartMarketPPM is the part of all GPUs of a model that starts may hold together that no payment covers, and
	// StartMarketLeast how many GPUs they may always hold.
	StartMarketPPM   int64 `env:"MUSTER_START_MARKET_PPM" envDefault:"250000"`
	StartMarketLeast int64 `env:"MUSTER_START_MARKET_LEAST" envDefault:"64"`
	// KnownRegistries are registries that no renter runs or slows down; see cluster.Config.
	KnownRegistries []string `env:"MUSTER_KNOWN_REGISTRIES" envDefault:"index.docker.io,ghcr.io,quay.io,nvcr.io,gcr.io,.pkg.dev,public.ecr.aws,mcr.microsoft.com,registry.gitlab.com,registry.k8s.io"`
	// Holdback is how long earnings wait before they are payable.
	Holdback      time.Duration `env:"MUSTER_HOLDBACK" envDefault:"168h"`
	PayoutMinimum string        `env:"MUSTER_PAYOUT_MINIMUM" envDefault:"10"` // smallest payout, a decimal
	// PayoutEvery is the interval of payouts; a week means Mondays at 06:00 UTC.
	PayoutEvery time.Duration `env:"MUSTER_PAYOUT_EVERY" envDefault:"168h"`
	// PayoutRecipients are countries whose operators get accounts at Stripe under the recipient service agreement:
	// "BR,IN".
	PayoutRecipients []string `env:"MUSTER_PAYOUT_RECIPIENT_COUNTRIES"`
	SignUpOff        bool     `env:"MUSTER_SIGNUP_OFF"`
	SignUpsPerHour   int      `env:"MUSTER_SIGNUPS_PER_HOUR"` // per address; 0 = 20
	AllowSimulated   bool     `env:"MUSTER_ALLOW_SIMULATED"`  // hosts with the fake NVML library; sandbox only

	StripeKey           SecretText `env:"MUSTER_STRIPE_KEY"` // "" = sandbox: our own fake Stripe
	StripeWebhookSecret SecretText `env:"MUSTER_STRIPE_WEBHOOK_SECRET"`
	stripeURL           string     // where tests serve an imitation of Stripe; "" = Stripe

	MerchantName string `env:"MUSTER_MERCHANT_NAME"` // merchant of record: legal name on invoices
	// MerchantAddress has lines separated by | and includes the country: "1 Street|12345 Town|Country".
	MerchantAddress []string `env:"MUSTER_MERCHANT_ADDRESS" envSeparator:"|"`
	MerchantVATID   string   `env:"MUSTER_MERCHANT_VAT_ID"`
	MerchantCountry string   `env:"MUSTER_MERCHANT_COUNTRY"` // ISO 3166-1 alpha-2 country whose tax is charged at home
	// TermsFile and PrivacyFile are plain text files for /terms and /privacy: blank lines separate paragraphs, and a line
	// that begins with "# " is a heading. Without them the pages describe the software and say that they are no contract.
	TermsFile   string `env:"MUSTER_TERMS_FILE"`
	PrivacyFile string `env:"MUSTER_PRIVACY_FILE"`
	// TaxRates is off, or the rates by country: "eu, GB=20%". The default is off, and eu in the sandbox.
	TaxRates string `env:"MUSTER_TAX_RATES"`

	// UnverifiedLimit is what an organisation may add before an owner's e-mail address and a card are verified: an amount,
	// or off. The default is 25, and off in the sandbox.
	UnverifiedLimit string `env:"MUSTER_UNVERIFIED_LIMIT"`
	// RefundLimit is what an organisation is given back within 30 days at its own request, unless it has used more: an
	// amount, or off. The default is 1000, and off in the sandbox.
	RefundLimit string `env:"MUSTER_REFUND_LIMIT"`

	// SMTPURL is smtp://user:password@host:587 or smtps://…; "" = the log only notes mail.
	SMTPURL  SecretText `env:"MUSTER_SMTP_URL"`
	MailFrom string     `env:"MUSTER_MAIL_FROM"` // "Muster <no-reply@muster.example>"; required with MUSTER_SMTP_URL

	mail notify.Mailer // how `muster dev` shows mail; nil: by SMTPURL
	// prepareReleases fills AgentReleases for `muster dev`; nil: it is filled.
	prepareReleases func() error

	Version string // version of the program, for /version and the log

	// SandboxFile is where earlier versions stored the fake Stripe's state, which is read into the database once.
	SandboxFile string `env:"MUSTER_SANDBOX_FILE"`

	// StoreFolder or StoreS3 is where volumes are stored; with neither, the platform offers none. StoreFolder is a folder
	// that this server serves at PublicURL. StoreS3 is https://host[:port]/bucket[/prefix], with the two keys.
	StoreFolder    string     `env:"MUSTER_STORE_FOLDER"`
	StoreS3        string     `env:"MUSTER_STORE_S3"`
	StoreRegion    string     `env:"MUSTER_STORE_REGION"`
	StoreAccessKey SecretText `env:"MUSTER_STORE_ACCESS_KEY"`
	StoreSecretKey SecretText `env:"MUSTER_STORE_SECRET_KEY"`
	// StoragePrice is the price of a stored GB for a month of 730 hours, a decimal; 0: storing is free.
	StoragePrice string `env:"MUSTER_STORAGE_PRICE" envDefault:"0.05"`
	// MaxStoredGB is what an organisation may store; 0 is 10000.
	MaxStoredGB int64 `env:"MUSTER_MAX_STORED_GB"`
	// FreeStoredGB and FreeReadGB are what a person may store, and read in a day, without a payment.
	FreeStoredGB int64 `env:"MUSTER_FREE_STORED_GB" envDefault:"10"`
	FreeReadGB   int64 `env:"MUSTER_FREE_READ_GB" envDefault:"10"`
	// KeepUnknownDays is for how many days an object in the store that no row knows is kept.
	KeepUnknownDays int `env:"MUSTER_STORE_KEEP_UNKNOWN_DAYS" envDefault:"14"`
	// BucketAnyAddress lets renters add buckets with http and at addresses that are not on the internet. Renters
	// then reach this server's own network.
	BucketAnyAddress bool `env:"MUSTER_BUCKET_ANY_ADDRESS"`

	Migrate bool `env:"MUSTER_MIGRATE" envDefault:"true"` // migrate the schema at start
	// LosslessFailover states that a promoted standby has every commit: a server starts on it without adopt-restore.
	LosslessFailover bool          `env:"MUSTER_LOSSLESS_FAILOVER"`
	Drain            time.Duration `env:"MUSTER_DRAIN" envDefault:"15s"` // time for pending responses when stopping
	LogLevel         slog.Level    `env:"MUSTER_LOG_LEVEL" envDefault:"INFO"`
	LogFormat        string        `env:"MUSTER_LOG_FORMAT" envDefault:"text"`

	// Commands returns the pages of the documentation about the command line, in Markdown, by the name of the command;
	// nil: there are none. It is no setting.
	Commands func() map[string]string
}

// localApps as MUSTER_APPS_DOMAIN means localhost and the port of the pages: browsers resolve every name below
// localhost to this machine.
const localApps = "localhost"

// SecretText is a setting that is never printed or logged.
type SecretText string

func (s SecretText) String() string {
	if s == "" {
		return ""
	}
	return "(set)"
}

func (s SecretText) GoString() string             { return s.String() }
func (s SecretText) LogValue() slog.Value         { return slog.StringValue(s.String()) }
func (s SecretText) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LoadConfig reads the settings from an environment, a map from name to value. It does not check that they fit
// together; see [Config.Validate].
func LoadConfig(environ map[string]string) (Config, error) {
	var c Config
	if err := env.ParseWithOptions(&c, env.Options{Environment: environ}); err != nil {
		return c, fault.Wrap(err, fault.Invalid, "the environment holds a setting that cannot be read")
	}
	return c, nil
}

// merchant returns the merchant of record that invoices name.
func (c *Config) merchant() statement.Party {
	p := statement.Party{
		Name:    strings.TrimSpace(c.MerchantName),
		Address: []string{},
		Country: strings.ToUpper(strings.TrimSpace(c.MerchantCountry)),
		VATID:   strings.TrimSpace(c.MerchantVATID),
	}
	for _, l := range c.MerchantAddress {
		if l = strings.TrimSpace(l); l != "" {
			p.Address = append(p.Address, l)
		}
	}
	return p
}

// taxer returns the tax rules for top-ups.
func (c *Config) taxer() (tax.Taxer, error) {
	s := strings.TrimSpace(c.TaxRates)
	if s == "" && c.Sandbox() {
		s = "eu"
	}
	rates, err := tax.ParseRates(s, account.IsCountry)
	if err != nil || rates == nil {
		return tax.None{}, err
	}
	return tax.Flat{Home: c.merchant().Country, Rates: rates}, nil
}

// checkTaxes refuses settings under which tax would be charged that cannot be declared.
func (c *Config) checkTaxes(bad *fault.Fields) {
	m := c.merchant()
	known := account.IsCountry(m.Country)
	if m.Country != "" && !known {
		bad.Add("MUSTER_MERCHANT_COUNTRY", "is the two letters of ISO 3166-1, such as DE, FR, GB or US")
	}
	if known {
		if _, err := account.NormalVATID(m.Country, m.VATID); err != nil {
			bad.Add("MUSTER_MERCHANT_VAT_ID", "%s", err)
		}
	}
	taxer, err := c.taxer()
	if err != nil {
		bad.Add("MUSTER_TAX_RATES", "%s", err)
		return
	}
	if _, flat := taxer.(tax.Flat); flat && !c.Sandbox() && (m.Name == "" || m.Country == "") {
		bad.Add("MUSTER_TAX_RATES", "needs MUSTER_MERCHANT_NAME and MUSTER_MERCHANT_COUNTRY: an invoice with tax names "+
			"who owes it")
	}
}

// maxLegalText is the largest size of a file of terms, in bytes.
// checkReleases checks the folder of the agent's release. Hosts run the script that the server makes of it as root.
func (c *Config) checkReleases(bad *fault.Fields) {
	if c.AgentReleases == "" || c.prepareReleases != nil {
		return
	}
	if err := releases.Check(c.AgentReleases); err != nil {
		bad.Add("MUSTER_AGENT_RELEASES", "cannot be used: %v", err)
	}
	if !strings.HasPrefix(c.PublicURL, "https://") {
		bad.Add("MUSTER_AGENT_RELEASES",
			"needs an https:// address in MUSTER_PUBLIC_URL: hosts run the script from there as root")
	}
}

// agentReleases returns what serves the agent.
func (c *Config) agentReleases(log *slog.Logger) *releases.Releases {
	cfg := releases.Config{Dir: c.AgentReleases, Prepare: c.prepareReleases, PublicURL: c.PublicURL, AgentURL: c.AgentURL,
		Log: log}
	if ca, err := os.ReadFile(c.TLSCA); err == nil {
		cfg.CA = string(ca)
	}
	return releases.New(cfg)
}

// installCommand returns the command that installs the agent from this server; nil: the server offers none.
func (c *Config) installCommand() func(token string) string {
	if c.AgentReleases == "" {
		return nil
	}
	return func(token string) string { return releases.Command(c.PublicURL, token) }
}

const maxLegalText = 256 << 10

// legalText reads a file of terms; "" is no file.
func legalText(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	switch {
	case err != nil:
		return "", err
	case len(b) > maxLegalText || !utf8.Valid(b):
		return "", fmt.Errorf("%s is not UTF-8 text of at most %d bytes", path, maxLegalText)
	}
	return string(b), nil
}

// Validate checks that a server can run with these settings. Its error, a [fault.Fields], names every invalid setting.
func (c *Config) Validate() error {
	var bad fault.Fields
	if c.DatabaseURL == "" {
		bad.Add("MUSTER_DATABASE_URL", "is not set: postgres://user:password@host:port/database")
	}
	if raw, err := c.sealSecret(); err != nil || len(raw) < 32 {
		bad.Add("MUSTER_SECRET", "must be at least 32 random bytes in base64 (openssl rand -base64 32), the same on every "+
			"replica")
	}
	if _, err := c.box(); err != nil && c.SecretPrevious != "" {
		bad.Add("MUSTER_SECRET_PREVIOUS", "must be at least 32 random bytes in base64, as MUSTER_SECRET was before")
	}
	switch raw, err := c.linkSecret(); {
	case err != nil || len(raw) < 32:
		bad.Add("MUSTER_LINK_SECRET", "must be at least 32 random bytes in base64")
	case c.SecretPrevious != "" && c.LinkSecret == "":
		bad.Add("MUSTER_LINK_SECRET", "must be set while MUSTER_SECRET_PREVIOUS is: to the MUSTER_SECRET with which hosts "+
			"were enrolled, and for good. "+
			"Without it hosts would no longer trust this server")
	}
	for name, u := range map[string]string{"MUSTER_PUBLIC_URL": c.PublicURL, "MUSTER_AGENT_URL": c.AgentURL} {
		if u == "" {
			continue // derived from the listener's address
		}
		if p, err := url.Parse(u); err != nil || p.Host == "" || (p.Scheme != "http" && p.Scheme != "https") {
			bad.Add(name, "is not an http(s) address")
		}
	}
	for _, a := range c.NATSPublic {
		if u, err := url.Parse(a); err != nil || u.Host == "" || (u.Scheme != "tls" && u.Scheme != "wss") {
			bad.Add("MUSTER_NATS_PUBLIC_URL", "%q is not a tls:// or wss:// address", a)
		}
	}
	if c.AgentURL != "" && !strings.HasPrefix(c.AgentURL, "https://") {
		bad.Add("MUSTER_AGENT_URL", "must be https: hosts send their enrolment token there")
	}
	c.checkReleases(&bad)
	if c.KeepUnknownDays < 1 || c.KeepUnknownDays > 3650 {
		bad.Add("MUSTER_STORE_KEEP_UNKNOWN_DAYS", "want 1 to 3650 days")
	}
	for name, path := range map[string]string{"MUSTER_TERMS_FILE": c.TermsFile, "MUSTER_PRIVACY_FILE": c.PrivacyFile} {
		if _, err := legalText(path); err != nil {
			bad.Add(name, "cannot be used: %v", err)
		}
	}
	if err := checkRelays(c.Relays); err != nil {
		bad.Add("MUSTER_RELAYS", "%v", err)
	}
	if host, _, err := net.SplitHostPort(c.RelayListen); c.RelayListen != "" && len(c.Relays) == 0 {
		if ip, perr := netip.ParseAddr(host); err != nil || perr != nil || ip.IsUnspecified() {
			bad.Add("MUSTER_RELAYS", "is not set: name this relay as hosts reach it, because MUSTER_RELAY_LISTEN does not "+
				"contain that")
		}
	}
	if c.RelaySecret != "" {
		if _, err := c.relaySecret(); err != nil {
			bad.Add("MUSTER_RELAY_SECRET", "must be at least 32 random bytes in base64, the same on servers and relays")
		}
	}
	if m := c.merchant(); (m.Name == "") != (len(m.Address) == 0) || (m.Name == "" && m.VATID != "") {
		bad.Add("MUSTER_MERCHANT_NAME", "goes with MUSTER_MERCHANT_ADDRESS: invoices name the merchant with both, or with "+
			"neither")
	}
	c.checkTaxes(&bad)
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad.Add("MUSTER_TLS_CERT", "needs MUSTER_TLS_KEY, and the other way round")
	}
	if c.TLSCert == "" {
		bad.Add("MUSTER_TLS_CERT", "is not set: hosts connect over TLS only")
	}
	if c.StripeKey != "" && c.StripeWebhookSecret == "" {
		bad.Add("MUSTER_STRIPE_WEBHOOK_SECRET", "is not set: without it no payment can be confirmed by Stripe")
	}
	if c.StripeKey != "" && c.AllowSimulated {
		bad.Add("MUSTER_ALLOW_SIMULATED", "real money cannot rent simulated GPUs")
	}
	if _, err := c.mailer(nil); err != nil {
		bad.Add("MUSTER_SMTP_URL", "%s (MUSTER_SMTP_URL, MUSTER_MAIL_FROM)", err)
	}
	if limit, err := c.unverifiedLimit(); err != nil || (limit != 0 && limit < payment.MinTopUp) || limit%money.Cent != 0 {
		bad.Add("MUSTER_UNVERIFIED_LIMIT", "is off, or an amount in whole cents of at least %s such as 25.00",
			payment.MinTopUp)
	} else if limit > 0 && c.SMTPURL == "" && !c.Sandbox() {
		bad.Add("MUSTER_UNVERIFIED_LIMIT", "needs MUSTER_SMTP_URL: without mail no one can verify an address and pay in "+
			"more than %s; off lifts the limit", limit)
	}
	if limit, err := c.refundLimit(); err != nil || limit < 0 || limit%money.Cent != 0 {
		bad.Add("MUSTER_REFUND_LIMIT", "is off, or an amount in whole cents such as 1000.00")
	}
	if err := money.CheckCurrency(c.Currency); err != nil {
		bad.Add("MUSTER_CURRENCY", "%v", err)
	}
	if c.Holdback < 0 || c.NewHoldback < 0 {
		bad.Add("MUSTER_HOLDBACK", "is how long earnings wait, such as 168h; it cannot be negative")
	}
	if n, err := money.ParseNano(c.PayoutMinimum); err != nil || n < money.Cent || n%money.Cent != 0 {
		bad.Add("MUSTER_PAYOUT_MINIMUM", "is the smallest payout in whole cents, such as 10.00; at least a cent")
	}
	if c.RelistLock < 0 {
		bad.Add("MUSTER_RELIST_LOCK", "is how long a host is not offered after a run ended by its fault, such as 1h; it "+
			"cannot be negative")
	}
	if c.StartWindow < 0 || c.StartWindow > 7*24*time.Hour {
		bad.Add("MUSTER_START_WINDOW", "is how long a start counts after it ended, 0 to 168h, such as 6h")
	}
	if c.StartFree < 1 {
		bad.Add("MUSTER_START_FREE", "is a number of GPU-seconds, at least 1")
	}
	if c.StartMarketPPM < 0 || c.StartMarketPPM > 1_000_000 || c.StartMarketLeast < 0 {
		bad.Add("MUSTER_START_MARKET_PPM", "is a part of the market in parts per million, 0 to 1000000, and "+
			"MUSTER_START_MARKET_LEAST a number of GPUs")
	}
	if c.PayoutEvery < time.Second {
		bad.Add("MUSTER_PAYOUT_EVERY", "is the time between payouts, such as 168h; at least a second")
	}
	if c.HostSharePPM < 1 || c.HostSharePPM > 1_000_000 {
		bad.Add("MUSTER_HOST_SHARE_PPM", "is a share in parts per million, 1 to 1000000")
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		bad.Add("MUSTER_LOG_FORMAT", "is text or json")
	}
	return bad.Err()
}

// startRules returns the limits on what is held without paying.
func (c *Config) startRules() fairness.StartRules {
	return fairness.StartRules{Window: c.StartWindow, Free: c.StartFree, Reserve: fairness.StartReserve,
		MarketPPM: c.StartMarketPPM, MarketLeast: c.StartMarketLeast}
}

// payouts returns the configuration of payouts; c must be valid.
func (c *Config) payouts() payout.Config {
	least, _ := money.ParseNano(c.PayoutMinimum) // checked by Validate
	return payout.Config{
		Currency:           c.Currency,
		Holdback:           c.Holdback,
		NewHoldback:        c.newHoldback(),
		Minimum:            least,
		Every:              c.PayoutEvery,
		PageURL:            c.PublicURL + "/payouts",
		RecipientCountries: c.PayoutRecipients,
		Merchant:           c.merchant(),
		Sandbox:            c.Sandbox(),
	}
}

// mailer returns how mail is sent.
func (c *Config) mailer(log *slog.Logger) (notify.Mailer, error) {
	if c.mail != nil && c.SMTPURL == "" {
		return c.mail, nil
	}
	if c.SMTPURL == "" {
		return notify.LogMailer{Log: log, Text: c.Sandbox()}, nil
	}
	return notify.NewSMTP(string(c.SMTPURL), c.MailFrom)
}

// unverifiedLimit returns the limit, or 0 for none.
func (c *Config) unverifiedLimit() (money.Nano, error) {
	switch s := strings.TrimSpace(c.UnverifiedLimit); {
	case s == "off", s == "" && c.Sandbox():
		return 0, nil
	case s == "":
		return 25 * money.Unit, nil
	default:
		return money.ParseNano(s)
	}
}

// refundLimit returns the limit, or 0 for none.
func (c *Config) refundLimit() (money.Nano, error) {
	switch s := strings.TrimSpace(c.RefundLimit); {
	case s == "off", s == "" && c.Sandbox():
		return 0, nil
	case s == "":
		return payment.DefaultRefundLimit, nil
	default:
		return money.ParseNano(s)
	}
}

// Sandbox reports whether the server runs on the sandbox's Stripe, where no real money moves.
func (c *Config) Sandbox() bool { return c.StripeKey == "" }

// sandboxSecret signs the sandbox's webhooks: any replica may deliver them to any other.
func (c *Config) sandboxSecret() (string, error) {
	raw, err := c.sealSecret()
	if err != nil {
		return "", err
	}
	b, err := hkdf.Key(sha256.New, raw, nil, "muster sandbox webhook v1", 32)
	return "whsec_" + hex.EncodeToString(b), err
}

// box returns the box that seals stored secrets, and opens what the previous secret sealed.
func (c *Config) box() (*seal.Box, error) {
	raw, err := c.sealSecret()
	if err != nil || c.SecretPrevious == "" {
		if err != nil {
			return nil, err
		}
		return seal.NewBox(raw)
	}
	previous, err := unbase64("MUSTER_SECRET_PREVIOUS", c.SecretPrevious)
	if err != nil {
		return nil, err
	}
	return seal.NewRotatingBox(raw, previous)
}

// linkSecret returns the secret from which the keys of the host link are derived.
func (c *Config) linkSecret() ([]byte, error) {
	if c.LinkSecret != "" {
		return unbase64("MUSTER_LINK_SECRET", c.LinkSecret)
	}
	return c.sealSecret()
}

func (c *Config) sealSecret() ([]byte, error) { return unbase64("MUSTER_SECRET", c.Secret) }

func unbase64(name string, secret SecretText) ([]byte, error) {
	s := strings.TrimRight(string(secret), "=")
	if b, err := base64.RawStdEncoding.DecodeString(s); err == nil {
		return b, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("%s is not base64", name)
	}
	return b, nil
}

// shared reports whether this replica is one of several, which connect their NATS servers or use one.
func (c *Config) shared() bool { return c.NATSURL != "" || c.NATSRouteURL != "" }

func (c *Config) replica() string {
	if c.ReplicaName != "" {
		return c.ReplicaName
	}
	h, err := os.Hostname()
	if err != nil {
		return "replica"
	}
	return h
}

// newHoldback returns how long the earnings of new operators wait: as configured, else 30 days, or the general holdback
// if that is less than a week, as on a test system. Most disputes of stolen cards are opened within a month.
func (c Config) newHoldback() time.Duration {
	if c.NewHoldback > 0 || c.Holdback < payout.DefaultHoldback {
		return c.NewHoldback
	}
	return 30 * 24 * time.Hour
}
