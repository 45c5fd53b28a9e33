package main

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/extsvc/svc"
)

// bankRow is the policy of a bank as the API shows it.
type bankRow struct {
	BankID   string          `json:"bank_id"`
	Document json.RawMessage `json:"document"`
}

func ofBank(b svc.BankPolicy) bankRow { return bankRow{b.BankID, b.Document} }

func (b bankRow) cells() []any { return []any{b.BankID} }

var bankCommands = []rows{
	listing("bank list", "list the banks that have a policy", "BANK", target.banks, ofBank),
	showing("bank show", "BANK", "show the policy of a bank", target.bank, ofBank),
	{
		name: "bank set", takes: "BANK FILE", about: "give a bank the policy in FILE",
		setup: flagless(setBank),
	},
	removal(
		"bank remove", "BANK", "remove the policy of a bank", "removed the policy of bank %s",
		target.removeBank,
	),
}

func setBank(ctx context.Context, c *call, t target) error {
	text, err := textOf(ctx, c.second)
	if err != nil {
		return err
	}
	policy := svc.BankPolicy{BankID: c.operand, Document: text}
	if t.local != nil {
		_, err = t.local.Banks.SetPolicy(ctx, t.by, policy)
	} else {
		_, err = t.far.Banks.SetPolicy(ctx, policy)
	}
	return c.done(c.inDocument(err), "changed the policy of bank %s", c.operand)
}

func (t target) banks(ctx context.Context) iter.Seq2[svc.BankPolicy, error] {
	bundle, err := t.export(ctx)
	return sequence(bundle.BankPolicies, err)
}

func (t target) bank(ctx context.Context, id string) (svc.BankPolicy, error) {
	if t.local != nil {
		return t.local.Banks.Policy(ctx, t.by, id)
	}
	return t.far.Banks.Policy(ctx, id)
}

func (t target) removeBank(ctx context.Context, id string) error {
	if t.local != nil {
		return t.local.Banks.RemovePolicy(ctx, t.by, id)
	}
	return t.far.Banks.RemovePolicy(ctx, id)
}
