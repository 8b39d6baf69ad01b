package front

import (
	"strings"

	"github.com/musterhq/muster/web/page"
)

// terms shows the terms of the operator of this platform, or a summary that says that they are missing.
func (s *Pages) terms(v *page.Visit) error {
	return s.legal(v, "Terms", s.TermsText, defaultTerms)
}

// privacy shows the operator's privacy notice, or a summary of what the software stores.
func (s *Pages) privacy(v *page.Visit) error {
	return s.legal(v, "Privacy", s.PrivacyText, defaultPrivacy)
}

func (s *Pages) legal(v *page.Visit, title, own, standard string) error {
	t := LegalText{Title: title, Own: strings.TrimSpace(own) != "", Merchant: s.Merchant.Name}
	if !t.Own {
		own = standard
	}
	t.Parts = parts(own)
	return s.Render(v, LegalPage(v.Page(title, ""), t))
}

// Part is a heading or a paragraph.
type Part struct {
	Heading bool
	Text    string
}

// parts splits plain text: blank lines separate paragraphs, and a line that begins with "# " is a heading.
func parts(text string) []Part {
	var out []Part
	var lines []string
	flush := func() {
		if len(lines) > 0 {
			out = append(out, Part{Text: strings.Join(lines, " ")})
		}
		lines = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		heading, is := strings.CutPrefix(line, "# ")
		switch {
		case is:
			flush()
			out = append(out, Part{Heading: true, Text: strings.TrimSpace(heading)})
		case line == "":
			flush()
		default:
			lines = append(lines, line)
		}
	}
	flush()
	return out
}

const defaultTerms = `# What this software does
Muster lets you rent GPUs of other people's machines by the second, and lets owners of machines rent them out.

# Money
You pay in advance. A cluster is charged only for the seconds in which all of its ranks are ready, at the price of its
quote. Credit that you have not used can be refunded on the billing page, as far as the card that paid it allows.
Operators are paid for measured time, less the fee that their account page shows, after a holding period.

# Use
Do not use rented machines to attack others, to mine cryptocurrency with stolen credit, or to break the law of the
country in which you or the machine are. Clusters that do are ended.

# Data
What a node stores ends with the node. Keep your own copy of everything that you want to keep. The owner of a machine
has physical control of it and can read what is on it.

# Liability
The operator of this platform has not published terms of liability, jurisdiction or availability.`

const defaultPrivacy = `# What is stored
Your e-mail address, name, a hash of your password, your sessions with their address and browser, your SSH public keys,
and the record of what you did here. For money: receipts, invoices and payouts, as the law requires. Cards and bank
accounts are stored by Stripe, not here.

# What hosts see
A host receives the image, command, environment and output of the nodes that it runs, and the addresses of the other
ranks. Environment values and registry passwords are stored encrypted and deleted when the cluster ends.

# Cookies
One keeps you signed in, one remembers light or dark. There is no tracking and no third-party script.

# Your rights
On the account page you can export your data and delete your account. Receipts and other documents are kept for as long
as the law requires, without more personal data than they need.`
