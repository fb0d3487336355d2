"""Who wants an event: one grammar of topics, and one meaning of filters, for subscriptions and webhooks alike."""

from projections.interests.containment import CONTAINS as CONTAINS
from projections.interests.containment import check_contents as check_contents
from projections.interests.errors import FilterTooCostly as FilterTooCostly
from projections.interests.errors import InvalidFilter as InvalidFilter
from projections.interests.errors import InvalidTopic as InvalidTopic
from projections.interests.filter_cost import MOST_CHARACTERS as MOST_CHARACTERS
from projections.interests.filter_cost import Purse as Purse
from projections.interests.filters import Filter as Filter
from projections.interests.filters import compile_filter as compile_filter
from projections.interests.filters import parse_filter as parse_filter
from projections.interests.json_values import read_json as read_json
from projections.interests.json_values import storable as storable
from projections.interests.topics import TopicMatcher as TopicMatcher
from projections.interests.topics import check_topic as check_topic
from projections.interests.topics import parse_topics as parse_topics
