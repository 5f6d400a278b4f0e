# A user C module: make USER_C_MODULES=FOLDER of this folder's parent
HARDCASE_DIR := $(USERMOD_DIR)
SRC_USERMOD += $(HARDCASE_DIR)/hardcase_kernel.c
CFLAGS_USERMOD += -I$(HARDCASE_DIR)
