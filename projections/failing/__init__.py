"""What happens to what fails: when it is tried again, and what is done when no attempt is left."""

from projections.failing.recovery import GiveUp as GiveUp
from projections.failing.recovery import Recovery as Recovery
from projections.failing.retries import Backoff as Backoff
from projections.failing.retries import Pause as Pause
from projections.failing.retries import Retries as Retries
from projections.failing.streak import ALIKE as ALIKE
from projections.failing.streak import Streak as Streak
