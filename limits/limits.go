// Package limits has the bounds of what svc accepts and keeps. A request beyond a limit gets
// svc.CodeInvalid, unless the comment says something else. Characters are Unicode code points.
package limits

import (
	"time"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/rate"
)

// Texts and documents of any request. Ids and names are compared byte by byte and never normalized.
const (
	IDLength = 128 // characters of an id or name, and of a bank, channel, topic or sender
	// NameLength limits a display name in characters, and a template's name in bytes: lists are
	// sorted by it.
	NameLength        = 1024
	DescriptionLength = 4096    // characters of a description
	Labels            = 100     // tags of a template, and integrations of a template
	LabelLength       = 128     // characters of a tag, an integration or a category
	URLLength         = 2048    // characters of a source's address
	SourceTokenLength = 4096    // bytes of a source's access token
	Manifest          = 1 << 20 // bytes of a manifest
	Nesting           = 64      // levels of arrays and objects in any JSON document

	// IdempotencyKeyLength is the most characters of an idempotency key. They are visible ASCII, so
	// a character is a byte.
	IdempotencyKeyLength = 255
)

// The limits of a policy document that a write makes or changes. A stored document beyond them
// stays as it is: it is read and decides, and a write may repeat it.
const (
	Patterns       = policy.MaxPatterns       // action and bank patterns of an access policy
	ListElements   = policy.MaxListElements   // elements of each list parameter of a statement
	Overrides      = policy.MaxOverrides      // overrides of a bank policy, of both kinds together
	PublicPatterns = policy.MaxPublicPatterns // action patterns of a bank policy
)

// The most that a caller or a row may have. One more is svc.CodeLimit, but for versions, files and tests.
const (
	PersonalSources   = 100    // personal sources of a user
	PersonalTemplates = 1000   // personal templates of a user
	ServiceAccounts   = 100    // service accounts that svc.ServiceAccounts.Create gives to one owner
	KeptAnswers       = 10_000 // answers to idempotency keys, of less than 1 KiB, for a caller but svc.Host

	// TemplateVersions limits the former versions kept of a template. The newest are kept. The store
	// deletes the others with the write that adds one.
	TemplateVersions = 20
	SourceFiles      = 1000 // files of a source that the store keeps in addition to its catalogue
	AccessTests      = 1000 // tests that a store keeps; one more is svc.CodeInvalid
)

// KeyOverlap is the longest time for which a rotated key stays accepted with its successor.
const KeyOverlap = 365 * 24 * time.Hour

// The bounds of a svc.Rate.
const (
	LeastRate = rate.MinPerSecond // a request in 10,000 seconds
	Rate      = rate.MaxPerSecond // 100,000 requests a second
	Burst     = rate.MaxBurst     // 100,000 requests
)

// Answers.
const (
	// Errors is the most errors that one error joins. When it is reached, one more error follows:
	// its Field is "", and it says that there may be more errors. svc.Lint has no such limit.
	Errors       = 100
	Questions    = 1000                   // questions of one call of svc.Policies.Decide
	Capabilities = policy.MaxCapabilities // elements of a list of svc.Policies.WhatCan
	Differences  = policy.MaxDifferences  // differences that a svc.AccessDiff lists

	// SimulatedStatements is how many statements may reach the subject of svc.Policies.Simulate. A
	// statement counts once for each way in which it reaches the subject, because the trace has an
	// element for each. Resolve has no such limit: what is stored was written by the host, and a
	// bundle may come from anybody.
	SimulatedStatements = 20_000

	EventRow = 16 << 10 // bytes of the Was of a svc.Event, and of its Is
)
