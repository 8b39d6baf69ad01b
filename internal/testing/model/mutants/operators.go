package main

const (
	claimGo   = "internal/billing/claim/claim.go"
	matureGo  = "internal/billing/payout/mature.go"
	lostGo    = "internal/billing/payout/lost.go"
	answerGo  = "internal/billing/bond/answer.go"
	retainGo  = "internal/billing/bond/retain.go"
	stakeGo   = "internal/billing/bond/stake.go"
	claimedGo = "internal/billing/payment/claim.go"
)

// ofPayouts are tests of what operators are paid, ofDisputes of what disputes claim.
func ofPayouts(run string) []suite  { return []suite{{"./internal/billing/payout", run}} }
func ofDisputes(run string) []suite { return []suite{{"./internal/billing/payment", run}} }

// operatorMutants break the rules by which an operator's whole money answers for what may have to be given back.
var operatorMutants = []mutant{
	{
		name: "free-bond", rule: "what disputes and reviews claim beyond earnings cannot leave the bond", file: claimGo,
		old: "	return max(0, c.Disputed+c.InReview-pending-payable)\n",
		new: "	return 0\n",
		by:  ofPayouts("TestReview_LostDisputeReachesTheBond"),
	},
	{
		name: "own-disputes-paid-out", rule: "what an operator owes for its own payments is not paid out", file: claimGo,
		old: "-max(0, c.Disputed-max(0, pending))-c.Owed)\n",
		new: "-max(0, c.Disputed-max(0, pending)))\n",
		by:  ofPayouts("TestPayout_OwnDisputeIsKeptBack"),
	},
	{
		name: "bond-is-not-unpaid", rule: "a review takes over what is in the bond", file: matureGo,
		old: "books.Balance(payable)+inBond)\n",
		new: "books.Balance(payable))\n",
		by:  ofPayouts("TestReview_LostDisputeReachesTheBond"),
	},
	{
		name: "looks-for-ever", rule: "a loss is taken over once", file: lostGo,
		old: "	if err := tx.Q.ReviewedLostDisputes(ctx, org, l.Disputes); err != nil {\n",
		new: "	if err := tx.Q.ReviewedLostDisputes(ctx, org, nil); err != nil {\n",
		by:  ofPayouts("TestReview_LossIsTakenOverOnce|TestReview_ReleasedBondIsFree"),
	},
	{
		name: "bond-beside-debt", rule: "what was refused beyond earnings is made good from the bond", file: answerGo,
		old: "	if part <= 0 {\n",
		new: "	if part != 1 {\n",
		by:  ofPayouts("TestReview_LostDisputeReachesTheBond|TestReview_ReservedBondAnswersLater"),
	},
	{
		name: "own-price", rule: "an operator's own price does not decide how much is retained", file: retainGo,
		old: "	if l.elsewhere > 0 {\n",
		new: "	if l.elsewhere < 0 {\n",
		by:  ofPayouts("TestRetain_OwnPriceDoesNotDecide"),
	},
	{
		name: "claimed-stakes", rule: "what a dispute claims of a bond stands in for no lease", file: stakeGo,
		old: "books.Spendable(ledger.HostBond(org, s.Currency)) < n {\n",
		new: "books.Balance(ledger.HostBond(org, s.Currency)) < n {\n",
		by:  ofDisputes("TestDispute_ClaimsTheBond"),
	},
	{
		name: "bond-escapes-dispute", rule: "a dispute claims the bond after the wallet", file: claimedGo,
		old: "	part := min(claim-t.wallet, books.Spendable(account))\n",
		new: "	part := min(0, books.Spendable(account))\n",
		by:  ofDisputes("TestDispute_ClaimsTheBond"),
	},
	{
		name: "released-bond-escapes", rule: "what is released into a bond is reserved for the dispute", file: claimedGo,
		old: "		return books.Reserve(ctx, kept, claims)\n",
		new: "		return books.Reserve(ctx, kept, 0)\n",
		by:  ofDisputes("TestDispute_ClaimsTheBond"),
	},
}
