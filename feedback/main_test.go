package feedback

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain holds that whatever the tests start ends with them.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
