package api

import "github.com/danielgtaylor/huma/v2"

// noun is a group of operations: a tag of the document and a page of the reference.
type noun struct {
	name, about string
	paths       []string // the first parts of the paths that belong to it
}

// groups are all nouns, in the order of the reference.
var groups = []noun{
	{"clusters", "Rent clusters, watch them and release them.", []string{"clusters", "leases"}},
	{"quotes", "Binding prices whose GPUs are held for a short time.", []string{"quotes"}},
	{
		"offers",
		"GPUs that can be rented now, and what a cluster would cost.",
		[]string{"offers", "estimate", "price-guide"},
	},
	{"templates", "Specs with a name, to rent from.", []string{"templates"}},
	{"volumes", "Data that follows to any host: volumes, their snapshots and files.", []string{"volumes"}},
	{"shared", "Shared file systems of operators, with a folder for each organisation.", []string{"shared"}},
	{"buckets", "Your own S3-compatible stores, with their credentials.", []string{"buckets"}},
	{"ssh-keys", "Keys that may log in to clusters, and the address of the SSH gateway.",
		[]string{"ssh-keys", "ssh-gateway"}},
	{"billing", "The wallet: balance, top-ups, cards, refunds, statements and invoices.", []string{"billing"}},
	{"budgets", "Limits on what an organisation or a project may spend.", []string{"budgets"}},
	{"documents", "Receipts, credit notes and self-billing documents.", []string{"documents"}},
	{"hosts", "Enrol hosts, set their prices and terms, and take them out of the market.",
		[]string{"hosts", "host-enrollments", "gpus"}},
	{"earnings", "What hosts earned, and payouts to their operator.", []string{"earnings", "payouts"}},
	{"bond", "Money of operators that pays others when their own host fails.", []string{"bond"}},
	{"account", "Sign up, and manage your own account and sessions.", []string{"signup", "device-logins", "me"}},
	{"organisation", "Members, invitations, legal details and the audit log of your organisation.",
		[]string{"org", "members", "invitations", "audit-events"}},
	{"notices", "Messages to your organisation, and webhooks that receive them.", []string{"notices", "webhooks"}},
	{"tokens", "API tokens and their scopes.", []string{"tokens"}},
	{"ledger", "The chained ledger, which anybody can compare.", []string{"ledger"}},
	{"admin", "The console of the platform's staff.", []string{"admin"}},
}

// nounOf returns the name of the group of a path below Base. A path that no group has is a group itself, until it is
// listed: a test asks for that.
func nounOf(path string) string {
	for _, n := range groups {
		for _, p := range n.paths {
			if p == path {
				return n.name
			}
		}
	}
	return path
}

// tags are the groups as the document lists them.
func tags() []*huma.Tag {
	out := make([]*huma.Tag, len(groups))
	for i, n := range groups {
		out[i] = &huma.Tag{Name: n.name, Description: n.about}
	}
	return out
}
