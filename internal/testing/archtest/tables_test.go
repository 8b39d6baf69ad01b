package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// owners maps each table to the package that writes it. Its queries are in internal/db/queries/<owner>.sql or
// <owner>_<topic>.sql, or in its own hand-written SQL; anybody may read.
var owners = map[string]string{
	"org":                     "account",
	"app_user":                "account",
	"membership":              "account",
	"circle_link":             "account", // by triggers of membership and payment_card
	"org_invitation":          "account",
	"device_login":            "account",
	"passkey":                 "account",
	"email_change":            "account",
	"user_totp":               "account",
	"recovery_code":           "account",
	"sign_in_challenge":       "account",
	"api_token":               "account",
	"session":                 "account",
	"ssh_key":                 "account",
	"login_throttle":          "account",
	"org_legal":               "account",
	"email_verification":      "account",
	"password_reset":          "account",
	"idempotency_key":         "idem",
	"audit_event":             "audit",
	"template":                "template",
	"data_domain":             "volume",
	"volume":                  "volume",
	"data_session":            "volume",
	"volume_writer":           "volume",
	"volume_shard":            "volume",
	"volume_mount":            "volume",
	"data_reservation":        "volume",
	"data_pack":               "volume",
	"volume_snapshot":         "volume",
	"data_level":              "volume",
	"data_meter":              "volume",
	"data_price":              "volume",
	"data_check":              "volume",
	"data_stray":              "volume",
	"data_served":             "volume",
	"bucket":                  "bucket",
	"bucket_mount":            "bucket",
	"shared_fs":               "sharedfs",
	"shared_host":             "sharedfs",
	"shared_folder":           "sharedfs",
	"shared_mount":            "sharedfs",
	"notice":                  "notify",
	"mail":                    "notify",
	"dead_letter":             "notify",
	"webhook":                 "notify",
	"webhook_delivery":        "notify",
	"postpaid_org":            "postpaid",
	"postpaid_charge":         "postpaid",
	"postpaid_invoice":        "postpaid",
	"postpaid_writeoff":       "postpaid",
	"postpaid_bank_payment":   "postpaid",
	"ledger_account":          "ledger",
	"ledger_balance":          "ledger",
	"ledger_tx":               "ledger",
	"ledger_transfer":         "ledger",
	"ledger_unlinked":         "ledger",
	"ledger_batch":            "ledger",
	"ledger_day":              "ledger",
	"ledger_day_account":      "ledger",
	"ledger_day_kind":         "ledger",
	"ledger_day_flow":         "ledger",
	"ledger_proposal":         "ledger",
	"ledger_link":             "ledger",
	"ledger_line":             "ledger",
	"fabric":                  "host",
	"host":                    "host",
	"host_inventory":          "host",
	"host_image":              "host",
	"host_status":             "host",
	"host_agent":              "host",
	"agent_channel":           "host",
	"host_key":                "host",
	"enrollment_token":        "host",
	"lease_traffic":           "host",
	"host_month_traffic":      "host",
	"host_pulls":              "host",
	"gpu":                     "host",
	"gpu_health":              "host",
	"gpu_claim":               "host",
	"fabric_claim":            "host",
	"fabric_partition":        "host", // by fabric_claim's trigger
	"host_rdma":               "host",
	"gpu_award":               "host",
	"gpu_requalify":           "host",
	"version_floor":           "host",
	"telemetry":               "host",
	"telemetry_speed":         "host",
	"node_telemetry":          "host",
	"stripe_customer":         "payment",
	"topup":                   "payment",
	"stripe_outbox":           "outbox",
	"stripe_event":            "events",
	"payment_card":            "payment",
	"card_setup":              "payment",
	"auto_topup":              "payment",
	"refund":                  "payment",
	"refund_allowance":        "payment",
	"receipt":                 "payment",
	"dispute":                 "payment",
	"promo_code":              "payment",
	"promo_redemption":        "payment",
	"promo_attempt":           "payment",
	"stripe_balance":          "reconcile",
	"payment_standing":        "payment",
	"stripe_read":             "reconcile",
	"blocked_card":            "payment",
	"sending_pause":           "outbox",
	"stripe_funds":            "reconcile",
	"control":                 "restore",
	"restore":                 "restore",
	"restore_finding":         "restore",
	"tax_entry":               "tax",
	"tax_remittance":          "tax",
	"tax_day":                 "tax",
	"payout_account":          "payout",
	"payout":                  "payout",
	"payout_reversal":         "payout",
	"payout_matured":          "payout",
	"payout_review":           "payout",
	"lost_dispute":            "payout",
	"operator_earning":        "payout",
	"operator_earning_hour":   "payout",
	"operator_earning_filled": "payout",
	"org_fee":                 "market",
	"offer":                   "market",
	"offer_price":             "market",
	"quote":                   "market",
	"fleet_change":            "market",
	"budget":                  "budget",
	"lease":                   "metering",
	"lease_price":             "metering",
	"cluster_window":          "metering",
	"lease_meter":             "metering",
	"time_anchor":             "metering",
	"usage_segment":           "metering",
	"segment_batch":           "metering",
	"segment_quarantine":      "metering",
	"service_credit":          "metering",
	"cluster":                 "cluster",
	"node":                    "cluster",
	"node_status":             "cluster",
	"cluster_event":           "cluster",
	"node_log":                "cluster",
	"node_replacement":        "cluster",
	"seal_progress":           "cluster",
	"node_log_retry":          "cluster",
	"bond_terms":              "bond",
	"bond_host_terms":         "bond",
	"bond_deposited":          "bond",
	"lease_bond":              "bond",
	"standby":                 "bond",
	"standby_relief":          "bond",
	"rank_gap":                "cluster",
	"silence":                 "cluster",
	"undecided_span":          "cluster",
	"suspension":              "cluster",
	"gang_strike":             "cluster",
	"pair_ban":                "cluster",
	"start_hold":              "cluster",
	"deaf_span":               "metering",
	"pulse":                   "host",
	"deaf_gap":                "host",
	"replica":                 "host",
	"sandbox_object":          "sandbox",
	"invoice":                 "statement",
	"document":                "document",
	"document_number":         "document",
	"document_checked":        "document",
	"ssh_host_key":            "cluster",
}

var (
	writes   = regexp.MustCompile(`(?i)\b(?:INSERT\s+INTO|UPDATE(?:\s+ONLY)?|DELETE\s+FROM)\s+([a-z_]+)`)
	creates  = regexp.MustCompile(`(?m)^CREATE TABLE ([a-z_]+) \(`)
	comments = regexp.MustCompile(`(?m)--.*$`)
	literals = regexp.MustCompile("(?s)`[^`]*`|\"(?:[^\"\\\\\n]|\\\\.)*\"")
)

func TestEveryTableHasAnOwner(t *testing.T) {
	t.Parallel()
	made := map[string]bool{}
	for _, f := range glob(t, "../../../migrations/*.sql") {
		for _, m := range creates.FindAllStringSubmatch(read(t, f), -1) {
			made[m[1]] = true
			if owners[m[1]] == "" {
				t.Errorf("%s: table %s has no owner", f, m[1])
			}
		}
	}
	for table := range owners {
		if !made[table] {
			t.Errorf("table %s is owned by %s and made by no migration", table, owners[table])
		}
	}
}

func TestOnlyTheOwnerWrites(t *testing.T) {
	t.Parallel()
	seen := 0
	check := func(file, writer, sql string) {
		for _, m := range writes.FindAllStringSubmatch(sql, -1) {
			if owner, ok := owners[strings.ToLower(m[1])]; ok {
				seen++
				if owner != writer {
					t.Errorf("%s: %s writes %s, which belongs to %s", file, writer, m[1], owner)
				}
			}
		}
	}
	for _, f := range glob(t, "../../../internal/db/queries/*.sql") {
		writer, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(f), ".sql"), "_")
		check(f, writer, comments.ReplaceAllString(read(t, f), ""))
	}
	eachSource(t, func(file string) {
		r := path.Base(room(path.Dir(file)))
		// Packages named …test make rows for tests and are in no program.
		if !strings.HasPrefix(file, "internal/") || strings.HasSuffix(file, "_test.go") ||
			strings.HasSuffix(path.Dir(file), "test") || r == "db" {
			return
		}
		for _, lit := range literals.FindAllString(read(t, filepath.Join("..", "..", "..", file)), -1) {
			check(file, r, lit)
		}
	})
	if seen == 0 {
		t.Fatal("no write seen: the patterns are broken")
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %d files", pattern, err, len(files))
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
