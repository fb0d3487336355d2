"""
Django: a model and its event commit together; the read model is a model, too.

    pip install slice-projections 'django>=5.2'
    export PROJECTIONS_DSN=postgresql://localhost/shop
    export SECRET_KEY="$(openssl rand -hex 32)"
    python manage.py migrate            # also installs or upgrades the schema of projections
    python manage.py runserver
    projections worker shop.projections
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
